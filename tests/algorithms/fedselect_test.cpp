#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/reference_case.hpp"
#include "fixtures/resumed_run.hpp"
#include "reference/fedselect_reference.hpp"

namespace fedhpc::testing {
namespace {

Keys with_fedselect(Keys changes) {
  changes.insert({"algorithm.name", "fedselect"});
  return tiny_keys(changes);
}

reference::Selection selection_of(const Keys& keys) {
  return {.rate = std::stod(own_value(keys, "select_rate", "0.25")),
          .limit = std::stod(own_value(keys, "select_limit", "0.8")),
          .every = std::stoll(own_value(keys, "select_every", "1")),
          .personal_passes = std::stoll(own_value(keys, "personal_passes", "1")),
          .alternations = std::stoll(own_value(keys, "alternations", "1"))};
}

class FedSelectReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(FedSelectReference, EqualsPlainLoop) {
  const Keys keys = with_fedselect(GetParam().changes);
  const reference::FedSelectOutcome expected =
      reference::fedselect(reference::make_problem(keys), selection_of(keys));
  ASSERT_GT(expected.personal_share.back(), 0.05);
  ASSERT_LT(expected.personal_share.back(), 0.9);
  const TinyResult result =
      expect_equals_reference(keys, expected.outcome, expected.personal, GetParam());
  EXPECT_GT(distance(result.personal, result.global.repeat({7})), 1e-3);
  if (world_communicator(60)->rank() != 0) return;
  const std::vector<double> shares = own_series(keys, result, "personal_share");
  for (std::size_t t = 0; t < shares.size(); ++t) {
    EXPECT_NEAR(shares[t], expected.personal_share[t], 1e-12) << "round " << t + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, FedSelectReference, ::testing::ValuesIn(all_cases()), name_of);
INSTANTIATE_TEST_SUITE_P(FallingRate, FedSelectReference, ::testing::ValuesIn(falling_lr_cases()),
                         name_of);
INSTANTIATE_TEST_SUITE_P(
    Selections, FedSelectReference,
    ::testing::Values(
        ReferenceCase{"up_to_the_limit",
                      {{"algorithm.select_rate", "0.5"},
                       {"algorithm.select_limit", "0.6"},
                       {"run.rounds", "5"}}},
        ReferenceCase{"every_second_training",
                      {{"algorithm.select_every", "2"},
                       {"topology.participation", "0.6"},
                       {"run.rounds", "6"}}},
        ReferenceCase{"three_passes", {{"algorithm.personal_passes", "3"}, {"train.block", "4"}}},
        ReferenceCase{"personal_columns_rest",
                      {{"algorithm.personal_passes", "0"}, {"train.block", "3"}}},
        ReferenceCase{"alternations",
                      {{"algorithm.personal_passes", "2"},
                       {"algorithm.alternations", "3"},
                       {"train.local_epochs", "1"},
                       {"train.block", "8"}}},
        ReferenceCase{"alternations_batch_norm",
                      with_batch_norm({{"algorithm.alternations", "2"}, {"train.block", "3"}}),
                      kBatchNormBound}),
    name_of);

TEST(FedSelect, WithNothingPersonalItIsFedAvgBitForBit) {
  const auto world = world_communicator(60);
  std::vector<Keys> settings = limit_settings();
  settings.push_back(with_batch_norm({{"train.block", "3"}}));
  for (Keys setting : settings) {
    setting["run.reproducible"] = "true";  // sums over ranks are of other lengths
    const TinyResult fedavg = run(tiny_keys(setting), *world);
    for (const std::string key : {"algorithm.select_limit", "algorithm.select_rate"}) {
      Keys keys = setting;
      keys[key] = "0";
      const TinyResult result = run(with_fedselect(keys), *world);
      EXPECT_TRUE(result.global.equal(fedavg.global)) << key;
      EXPECT_TRUE(result.personal.equal(fedavg.global.repeat({7}))) << key;
      if (world->rank() != 0) continue;
      EXPECT_EQ(result.metrics.back().train_loss, fedavg.metrics.back().train_loss);
      EXPECT_EQ(bytes_up(result.metrics.back()), bytes_up(fedavg.metrics.back()));
      EXPECT_EQ(bytes_down(result.metrics.back()), bytes_down(fedavg.metrics.back()));
    }
  }
}

TEST(FedSelect, WithEverythingPersonalClientsTrainAlone) {
  const auto world = world_communicator(60);
  for (const Keys& more : {Keys{}, Keys{{"train.block", "4"}}}) {
    // Full batches: personal columns see others than shared ones elsewhere. And no biases.
    Keys setting = with_batch_norm({{"model.norm", "none"},
                                    {"model.bias", "false"},
                                    {"train.batch_size", "0"},
                                    {"run.rounds", "4"}});
    setting.insert(more.begin(), more.end());
    Keys alone = setting;
    alone["algorithm.name"] = "localonly";
    setting.insert({{"algorithm.select_rate", "1"}, {"algorithm.select_limit", "1"}});
    const Keys keys = with_fedselect(setting);
    const TinyResult result = run(keys, *world);
    ASSERT_EQ(reference::make_problem(keys).layout->count(Tag::Bias), 0) << "they stay shared";
    EXPECT_GT(distance(result.personal, result.initial.repeat({7})), 1e-2);
    const Tensor own = result.personal.view({7, -1});
    const Tensor expected = run(tiny_keys(alone), *world).personal.view({7, -1});
    for (std::int64_t k = 0; k < own.size(0); ++k) {
      // One that has never trained has the model of its start: here that of the server.
      const bool trained = distance(expected[k], result.initial.view(-1)) > 0;
      // The order of a batch, which sums follow, is that of the pass.
      EXPECT_LT(distance(own[k], trained ? expected[k] : result.global.view(-1)), 1e-12) << k;
    }
  }
}

TEST(FedSelect, BooksSharedColumnsAndMasks) {
  const auto world = world_communicator(60);
  for (const Keys& changes : {Keys{}, with_batch_norm()}) {
    Keys keys = with_fedselect(changes);
    keys.insert({{"algorithm.select_rate", "0.5"}, {"algorithm.select_limit", "1"}});
    keys["run.rounds"] = "4";
    keys["run.dtype"] = "float32";
    const reference::Problem problem = reference::make_problem(keys);
    const TinyResult result = run(keys, *world);
    if (world->rank() != 0) continue;
    const auto all = static_cast<double>(problem.layout->size());
    const auto d = static_cast<double>(problem.layout->count(Tag::Trainable));
    std::vector<double> shares = own_series(keys, result, "personal_share");
    shares.insert(shares.begin(), 0);
    // Those that cannot train share everything: client 3, and of batch norm 2, which has one sample.
    const double train = changes.empty() ? 6 : 5;
    for (std::size_t t = 0; t < result.metrics.size(); ++t) {
      const double columns = 7 * all - train * d * shares[t];
      EXPECT_NEAR(bytes_down(result.metrics[t]), 4 * columns, 1e-6) << t;
      EXPECT_NEAR(bytes_up(result.metrics[t]), 4 * columns + train * (std::ceil(d / 8) + 4), 1e-6)
          << t;
    }
    EXPECT_GT(shares.back(), 0.6);
  }
}

TEST(FedSelect, ClientsThatNeverTrainedHaveTheGlobalModel) {
  const Keys keys = with_fedselect({{"topology.participation", "0.3"}, {"run.rounds", "2"}});
  const TinyResult result = run(keys, *world_communicator(60));
  expect_untrained_have(result.global, result);
}

TEST(FedSelect, ResumesWithItsMasks) {
  const Keys keys = with_fedselect(
      {{"run.rounds", "6"}, {"topology.participation", "0.6"}, {"algorithm.select_every", "2"}});
  expect_goes_on(keys, {3});
}

TEST(FedSelect, RefusesWhatItsPayloadsHaveNoPlaceFor) {
  EXPECT_TRUE(refuses(with_fedselect({{"algorithm.codec", "fp16"}})));
  EXPECT_TRUE(refuses(with_fedselect({{"algorithm.error_feedback", "ef21"}})));
  EXPECT_TRUE(refuses(with_fedselect({{"server.optimizer", "adam"}})));
  EXPECT_TRUE(
      refuses(with_batch_norm({{"algorithm.name", "fedselect"}, {"train.buffers", "local"}})));
}

}  // namespace
}  // namespace fedhpc::testing
