#include <string>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/reference_case.hpp"
#include "reference/ditto_reference.hpp"

namespace fedhpc::testing {
namespace {

Keys with_ditto(Keys changes, const std::string& mu) {
  changes.insert({{"algorithm.name", "ditto"}, {"algorithm.mu", mu}});
  return tiny_keys(changes);
}

class DittoReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(DittoReference, EqualsPlainLoop) {
  const Keys keys = with_ditto(GetParam().changes, "0.7");
  const reference::Problem problem = reference::make_problem(keys);
  const reference::DittoOutcome expected = reference::ditto(problem, 0.7);
  ASSERT_GT(
      distance(flatten_all(expected.personal), flatten_all(reference::ditto(problem, 0).personal)),
      1e-3)
      << "the term matters";
  expect_equals_reference(keys, expected.outcome, expected.personal, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Settings, DittoReference, ::testing::ValuesIn(all_cases()), name_of);

std::vector<Keys> collapses() {
  return {{},
          {{"run.dtype", "float32"}, {"topology.participation", "0.4"}, {"run.rounds", "5"}},
          {{"train.optimizer", "nesterov"}, {"train.momentum", "0.5"}, {"train.block", "4"}},
          with_batch_norm({{"topology.participation", "0.6"}, {"train.block", "3"}})};
}

TEST(Ditto, TheGlobalModelIsFedAvgsBitForBit) {
  const auto world = world_communicator(60);
  // At home: where a client is trained depends on what a method keeps of it, and sums on that.
  for (Keys setting : collapses()) {
    setting["topology.placement"] = "home";
    const TinyResult fedavg = run(tiny_keys(setting), *world);
    for (const std::string mu : {"0", "0.5", "3"}) {
      const TinyResult ditto = run(with_ditto(setting, mu), *world);
      EXPECT_TRUE(ditto.global.equal(fedavg.global)) << mu;
      if (world->rank() != 0) continue;
      EXPECT_EQ(ditto.metrics.back().global_accuracy, fedavg.metrics.back().global_accuracy);
      EXPECT_EQ(bytes_up(ditto.metrics.back()), bytes_up(fedavg.metrics.back()));
      EXPECT_EQ(bytes_down(ditto.metrics.back()), bytes_down(fedavg.metrics.back()));
    }
  }
}

TEST(Ditto, WithoutItsTermPersonalModelsAreLocalOnlysBitForBit) {
  const auto world = world_communicator(60);
  for (const Keys& setting : collapses()) {
    Keys alone = setting;
    alone["algorithm.name"] = "localonly";
    const TinyResult localonly = run(tiny_keys(alone), *world);
    const TinyResult ditto = run(with_ditto(setting, "0"), *world);
    EXPECT_TRUE(ditto.personal.equal(localonly.personal));
    if (world->rank() != 0) continue;
    EXPECT_EQ(ditto.metrics.back().personal_accuracy, localonly.metrics.back().personal_accuracy);
  }
}

TEST(Ditto, AStrongTermPullsPersonalModelsToTheReceivedOne) {
  const auto world = world_communicator(60);
  const Keys setting{{"run.rounds", "8"}};
  const auto apart = [&](const std::string& mu) {
    const TinyResult result = run(with_ditto(setting, mu), *world);
    return distance(result.personal, result.global.repeat({7}));
  };
  EXPECT_LT(apart("5"), 0.5 * apart("0.1"));
}

TEST(Ditto, ClientsThatNeverTrainedKeepTheInitialModel) {
  const auto world = world_communicator(60);
  const TinyResult result =
      run(with_ditto({{"topology.participation", "0.3"}, {"run.rounds", "2"}}, "0.7"), *world);
  expect_untrained_have(result.initial, result);
}

}  // namespace
}  // namespace fedhpc::testing
