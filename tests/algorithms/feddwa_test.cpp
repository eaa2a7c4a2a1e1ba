#include "fedhpc/algorithms/feddwa.hpp"

#include <numeric>
#include <string>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/message_passing_case.hpp"
#include "reference/feddwa_reference.hpp"

namespace fedhpc::testing {
namespace {

Keys with_feddwa(Keys changes = {}) {
  changes.insert({{"algorithm.name", "feddwa"}, {"algorithm.top_k", "3"}});
  return tiny_keys(changes);
}

reference::FedDWAOutcome expected_of(const Keys& keys) {
  return reference::feddwa(reference::make_problem(keys), std::stoul(keys.at("algorithm.top_k")));
}

class FedDWAReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(FedDWAReference, EqualsPlainLoop) {
  const Keys keys = with_feddwa(GetParam().changes);
  const reference::FedDWAOutcome expected = expected_of(keys);
  ASSERT_LT(expected.least_own_weight, 0.95) << "models meet";
  expect_equals_reference(keys, expected.clouds, expected.train_loss, GetParam().single_bound);
}

/// Without those that choose how clients are weighed, which FedDWA does not.
std::vector<ReferenceCase> unweighed_cases() {
  std::vector<ReferenceCase> cases = all_cases();
  std::erase_if(
      cases, [](const ReferenceCase& one) { return one.changes.contains("algorithm.weighting"); });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Settings, FedDWAReference, ::testing::ValuesIn(unweighed_cases()),
                         name_of);

INSTANTIATE_TEST_SUITE_P(
    Nearest, FedDWAReference,
    ::testing::Values(ReferenceCase{"two", {{"algorithm.top_k", "2"}, {"run.rounds", "5"}}},
                      ReferenceCase{"five", {{"algorithm.top_k", "5"}, {"train.block", "3"}}},
                      ReferenceCase{"more_than_clients", {{"algorithm.top_k", "100"}}},
                      ReferenceCase{"more_than_participants",
                                    {{"algorithm.top_k", "5"},
                                     {"topology.participation", "0.4"},
                                     {"run.rounds", "6"}}}),
    name_of);

TEST(FedDWA, WeightsAreInverseSquaresOfTheNearest) {
  const Tensor squares = at::arange(1, 17, at::kDouble).reshape({4, 4});
  for (const std::int64_t top_k : {1, 2, 3, 4, 9}) {
    const Tensor weights = FedDWA::weights_of(squares, top_k);
    for (std::int64_t k = 0; k < 4; ++k) {
      std::vector<double> distances;
      for (std::int64_t j = 0; j < 4; ++j) {
        distances.push_back(std::sqrt(squares[k][j].item<double>()));
      }
      const std::vector<double> expected =
          reference::feddwa_weights(distances, static_cast<std::size_t>(top_k));
      EXPECT_NEAR(std::accumulate(expected.begin(), expected.end(), 0.0), 1, 1e-14);
      for (std::int64_t j = 0; j < 4; ++j) {
        EXPECT_NEAR(weights[k][j].item<double>(), expected[static_cast<std::size_t>(j)], 1e-14);
      }
    }
  }
}

TEST(FedDWA, EqualAndZeroDistancesGiveNumbers) {
  // A model that is not finite is near nobody, and keeps itself.
  const Tensor far = at::full({3, 3}, 1.0, at::kDouble);
  far[0].fill_(std::nan(""));
  far.select(1, 0).fill_(std::nan(""));
  for (const std::int64_t top_k : {1, 2, 3}) {
    const Tensor weights = FedDWA::weights_of(far, top_k);
    EXPECT_EQ(weights[0][0].item<double>(), 1);
    EXPECT_EQ(weights[1][0].item<double>() + weights[2][0].item<double>(), 0);
    EXPECT_EQ(weights[1].sum().item<double>(), 1);
  }
  const Tensor same = FedDWA::weights_of(at::full({5, 5}, 0.0, at::kDouble), 2);
  for (std::int64_t k = 0; k < 5; ++k) {
    EXPECT_EQ(same[k][0].item<double>(), 0.5);  // the first ones of equals
    EXPECT_EQ(same[k][1].item<double>(), 0.5);
    EXPECT_EQ(same[k].sum().item<double>(), 1);
  }
  Tensor one = at::full({3, 3}, 4.0, at::kDouble);
  one[1][2].fill_(0);
  EXPECT_NEAR(FedDWA::weights_of(one, 3)[1][2].item<double>(), 1, 1e-15);
}

TEST(FedDWA, ThoseThatMeetNobodyAreAlone) {
  // One participant a round, and one client that has all the data.
  expect_every_client_alone(with_feddwa({{"topology.participation", "0.1"}, {"run.rounds", "6"}}));
  expect_every_client_alone(with_one_client(with_feddwa()));
}

TEST(FedDWA, ClientsThatNeverTrainedKeepTheInitialModel) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const TinyResult result =
      run(with_feddwa({{"topology.participation", "0.3"}, {"run.rounds", "2"}}), *comm);
  expect_untrained_have(result.initial, result);
}

TEST(FedDWA, BooksTwoModelsUpAndOneDown) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const TinyResult result =
      run(with_feddwa({{"topology.participation", "0.6"}, {"algorithm.codec", "fp16"}}), *comm);
  if (comm->rank() != 0) return;
  const double model = static_cast<double>(result.personal.numel()) / 7;
  for (const RoundMetrics& metrics : result.metrics) {
    EXPECT_EQ(metrics.participants, 4);
    EXPECT_EQ(metrics.bytes_down_client_cloud, 4 * 8 * model);
    EXPECT_EQ(metrics.bytes_up_client_cloud, 4 * 2 * 2 * model);
  }
}

TEST(FedDWA, SameBitsOnAnyRanks) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  for (const std::string dtype : {"float64", "float32"}) {
    const Keys keys = with_feddwa(with_batch_norm(
        {{"run.dtype", dtype}, {"run.reproducible", "true"}, {"topology.participation", "0.8"}}));
    expect_same_bits(run(keys, *comm), run(keys, *local_communicator()), *comm);
  }
}

}  // namespace
}  // namespace fedhpc::testing
