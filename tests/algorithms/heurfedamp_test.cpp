#include <numeric>
#include <string>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/message_passing_case.hpp"
#include "reference/heurfedamp_reference.hpp"

namespace fedhpc::testing {
namespace {

Keys with_heurfedamp(Keys changes) {
  changes.insert({{"algorithm.name", "heurfedamp"},
                  {"algorithm.sigma", "25"},
                  {"algorithm.alpha", "0.5"},
                  {"algorithm.lambda", "0.7"}});
  return tiny_keys(changes);
}

reference::HeurFedAMPSettings settings_of(const Keys& keys) {
  return {.sigma = std::stod(keys.at("algorithm.sigma")),
          .alpha = std::stod(keys.at("algorithm.alpha")),
          .lambda = std::stod(keys.at("algorithm.lambda"))};
}

class HeurFedAMPReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(HeurFedAMPReference, EqualsPlainLoop) {
  const Keys keys = with_heurfedamp(GetParam().changes);
  expect_equals_messages(keys,
                         reference::heurfedamp(reference::make_problem(keys), settings_of(keys)),
                         GetParam().single_bound);
}

INSTANTIATE_TEST_SUITE_P(
    Settings, HeurFedAMPReference,
    ::testing::Values(
        ReferenceCase{"epochs", {}}, ReferenceCase{"wide_blocks", {{"train.block", "4"}}},
        ReferenceCase{"steps", {{"train.local_epochs", "0"}, {"train.local_steps", "6"}}},
        ReferenceCase{"full_batch", {{"train.batch_size", "0"}}},
        ReferenceCase{"some_clients", {{"topology.participation", "0.4"}, {"run.rounds", "6"}}},
        ReferenceCase{"little_of_its_own", {{"algorithm.alpha", "0.1"}}},
        ReferenceCase{"nothing_of_its_own", {{"algorithm.alpha", "0"}, {"run.rounds", "6"}}},
        ReferenceCase{"flat", {{"algorithm.sigma", "1"}}},
        ReferenceCase{"equal_weights", {{"algorithm.sigma", "0"}, {"run.rounds", "6"}}},
        ReferenceCase{"sharp", {{"algorithm.sigma", "100"}}},
        ReferenceCase{"momentum", {{"train.optimizer", "momentum"}, {"train.momentum", "0.5"}}},
        ReferenceCase{"batch_norm", with_batch_norm({{"train.block", "3"}}), kBatchNormBound},
        ReferenceCase{"weight_decay", {{"train.weight_decay", "0.01"}, {"train.block", "3"}}}),
    name_of);

TEST(HeurFedAMP, ReferenceWeightsAreSharesOfOne) {
  const Keys keys = with_heurfedamp({});
  const reference::MessagesOutcome trained =
      reference::heurfedamp(reference::make_problem(keys), settings_of(keys));
  for (std::size_t i = 0; i < trained.models.size(); ++i) {
    const std::vector<double> xi =
        reference::heurfedamp_weights(i, trained.models, {.sigma = 25, .alpha = 0.3});
    EXPECT_NEAR(std::accumulate(xi.begin(), xi.end(), 0.0), 1, 1e-14);
    EXPECT_EQ(xi[i], 0.3);
  }
}

TEST(HeurFedAMP, SigmaZeroMixesWithThePlainMeanOfTheOthers) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const Keys keys = with_heurfedamp({{"algorithm.sigma", "0"}});
  const auto mean_of_others = [](std::size_t i, const std::vector<reference::Parameters>& models) {
    std::vector<double> xi(models.size(), 0.5 / static_cast<double>(models.size() - 1));
    xi[i] = 0.5;
    return xi;
  };
  const reference::MessagesOutcome expected =
      reference::message_passing(reference::make_problem(keys), 0.7, mean_of_others);
  EXPECT_LT(distance(run(keys, *comm).personal, flatten_all(expected.models)), 1e-9);
}

TEST(HeurFedAMP, SharpestWeightsStayFinite) {
  // exp(sigma cos) is beyond double.
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const TinyResult result = run(with_heurfedamp({{"algorithm.sigma", "5000"}}), *comm);
  EXPECT_TRUE(result.personal.isfinite().all().item<bool>());
  EXPECT_GT(distance(result.personal, result.initial), 1e-2);
}

TEST(HeurFedAMP, WithItsOwnModelAndNoTermEveryClientIsAlone) {
  for (const std::string dtype : {"float64", "float32"}) {
    expect_every_client_alone(with_heurfedamp({{"algorithm.alpha", "1"},
                                               {"algorithm.lambda", "0"},
                                               {"run.dtype", dtype},
                                               {"topology.participation", "0.6"}}));
  }
}

TEST(HeurFedAMP, OneClientIsAlone) {
  expect_every_client_alone(with_one_client(with_heurfedamp({{"algorithm.lambda", "0"}})));
}

TEST(HeurFedAMP, BooksOneModelEachWay) { expect_one_model_each_way(with_heurfedamp({})); }

TEST(HeurFedAMP, MixesBatchNormStatistics) {
  // One step of size zero a round moves running statistics r to 0.9 r + 0.1 (those of the batch)
  // and nothing else. In round 2 clients start from the mean of the others instead of their own.
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  Keys keys = with_heurfedamp({{"algorithm.alpha", "0"},
                               {"algorithm.sigma", "0"},
                               {"data.name", "hdf5"},
                               {"data.file", tiny_images()},
                               {"data.standardize", "half"},
                               {"model.name", "cnn2"},
                               {"model.width", "0.5"},
                               {"run.rounds", "1"},
                               {"train.batch_size", "0"},
                               {"train.local_epochs", "1"},
                               {"train.lr", "0"}});
  for (const std::string other : {"data.features", "data.classes", "model.hidden"}) {
    keys.erase(other);
  }
  const Tensor first = run(keys, *comm).personal.reshape({7, -1});
  keys["run.rounds"] = "2";
  const Tensor mixed = run(keys, *comm).personal.reshape({7, -1});
  const Tensor apart = alone(keys, *comm).personal.reshape({7, -1});
  for (const std::int64_t i : {0, 1, 4, 5, 6}) {  // the others have too few samples to train
    const Tensor mean_of_others = first.sum(0).sub(first[i]).div(6);
    const Tensor expected = mean_of_others.sub(first[i]).mul(0.9);
    EXPECT_GT(expected.norm().item<double>(), 1e-3);
    EXPECT_LT(mixed[i].sub(apart[i]).sub(expected).norm().item<double>(), 1e-12) << i;
  }
}

}  // namespace
}  // namespace fedhpc::testing
