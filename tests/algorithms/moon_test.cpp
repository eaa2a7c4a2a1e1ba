#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/reference_case.hpp"
#include "reference/moon_reference.hpp"

namespace fedhpc::testing {
namespace {

Keys with_moon(Keys changes, const std::string& mu, const std::string& temperature = "0.5") {
  changes.insert(
      {{"algorithm.name", "moon"}, {"algorithm.mu", mu}, {"algorithm.temperature", temperature}});
  return tiny_keys(changes);
}

class MOONReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(MOONReference, EqualsPlainLoop) {
  const Keys keys = with_moon(GetParam().changes, "3", "0.4");
  const reference::Problem problem = reference::make_problem(keys);
  const reference::MOONOutcome expected = reference::moon(problem, 3, 0.4);
  ASSERT_GT(std::abs(expected.contrast - std::log(2.0)), 1e-4) << "the three models agree";
  const Tensor without = reference::moon(problem, 0, 0.4).outcome.global;
  ASSERT_GT(distance(without, expected.outcome.global), 1e-4) << "the term moves nothing";
  expect_equals_reference(keys, expected.outcome, GetParam().single_bound);
}

INSTANTIATE_TEST_SUITE_P(Settings, MOONReference, ::testing::ValuesIn(all_cases()), name_of);
INSTANTIATE_TEST_SUITE_P(FallingRate, MOONReference, ::testing::ValuesIn(falling_lr_cases()),
                         name_of);

std::vector<Keys> settings_of_limits() {
  std::vector<Keys> settings = limit_settings();
  settings.push_back(with_batch_norm({{"topology.placement", "home"}, {"train.block", "3"}}));
  return settings;
}

TEST(MOON, WithMuZeroItIsFedAvgBitForBit) {
  const auto world = world_communicator(60);
  for (const Keys& setting : settings_of_limits()) {
    const TinyResult fedavg = run(tiny_keys(setting), *world);
    const TinyResult result = run(with_moon(setting, "0"), *world);
    EXPECT_TRUE(result.global.equal(fedavg.global));
    if (world->rank() != 0) continue;
    EXPECT_EQ(result.metrics.back().train_loss, fedavg.metrics.back().train_loss);
  }
}

TEST(MOON, AFirstParticipationIsFedAvgsBitForBit) {
  const auto world = world_communicator(60);
  for (Keys setting : limit_settings()) {
    setting["run.rounds"] = "1";
    EXPECT_TRUE(
        run(with_moon(setting, "5"), *world).global.equal(run(tiny_keys(setting), *world).global));
  }
}

TEST(MOON, SendsWhatFedAvgSends) {
  const auto world = world_communicator(60);
  for (const Keys& setting : settings_of_limits()) {
    const TinyResult fedavg = run(tiny_keys(setting), *world);
    const TinyResult result = run(with_moon(setting, "1"), *world);
    if (world->rank() != 0) continue;
    EXPECT_EQ(bytes_up(result.metrics.back()), bytes_up(fedavg.metrics.back()));
    EXPECT_EQ(bytes_down(result.metrics.back()), bytes_down(fedavg.metrics.back()));
  }
}

TEST(MOON, OfAModelOfOneLayerIsFedAvg) {
  const auto world = world_communicator(60);
  const Keys setting{{"topology.placement", "home"}, {"model.name", "mlr"}};
  EXPECT_TRUE(
      run(with_moon(setting, "5"), *world).global.equal(run(tiny_keys(setting), *world).global));
}

}  // namespace
}  // namespace fedhpc::testing
