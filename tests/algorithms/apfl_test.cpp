#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/reference_case.hpp"
#include "fixtures/resumed_run.hpp"
#include "reference/apfl_reference.hpp"

namespace fedhpc::testing {
namespace {

Keys with_apfl(Keys changes, const std::string& alpha, const std::string& rule = "fixed") {
  changes.insert(
      {{"algorithm.name", "apfl"}, {"algorithm.alpha", alpha}, {"algorithm.alpha_rule", rule}});
  return tiny_keys(changes);
}

class APFLReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(APFLReference, EqualsPlainLoop) {
  for (const std::string rule : {"fixed", "adaptive"}) {
    SCOPED_TRACE(rule);
    const Keys keys = with_apfl(GetParam().changes, "0.4", rule);
    const reference::APFLOutcome expected =
        reference::apfl(reference::make_problem(keys), 0.4, rule == "adaptive");
    double moved = 0;
    for (const double alpha : expected.alpha) moved += std::abs(alpha - 0.4);
    ASSERT_EQ(moved > 1e-3, rule == "adaptive") << moved;
    expect_equals_reference(keys, expected.outcome, expected.personal, GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, APFLReference, ::testing::ValuesIn(all_cases()), name_of);
INSTANTIATE_TEST_SUITE_P(FallingRate, APFLReference, ::testing::ValuesIn(falling_lr_cases()),
                         name_of);

TEST(APFL, TheGlobalModelIsFedAvgsBitForBit) {
  const auto world = world_communicator(60);
  std::vector<Keys> settings = limit_settings();
  settings.push_back(with_batch_norm({{"topology.placement", "home"}, {"train.block", "3"}}));
  for (const Keys& setting : settings) {
    const TinyResult fedavg = run(tiny_keys(setting), *world);
    for (const std::string rule : {"fixed", "adaptive"}) {
      const TinyResult result = run(with_apfl(setting, "0.5", rule), *world);
      EXPECT_TRUE(result.global.equal(fedavg.global)) << rule;
      if (world->rank() != 0) continue;
      EXPECT_EQ(bytes_up(result.metrics.back()), bytes_up(fedavg.metrics.back()));
      EXPECT_EQ(bytes_down(result.metrics.back()), bytes_down(fedavg.metrics.back()));
    }
  }
}

TEST(APFL, WithAlphaZeroItIsFedAvgBitForBit) {
  const auto world = world_communicator(60);
  for (const Keys& setting : limit_settings()) {
    const TinyResult fedavg = run(tiny_keys(setting), *world);
    EXPECT_TRUE(run(with_apfl(setting, "0"), *world).personal.equal(fedavg.global.repeat({7})));
  }
}

TEST(APFL, WithAlphaOneItIsLocalOnly) {
  const auto world = world_communicator(60);
  for (Keys setting : limit_settings()) {
    const TinyResult result = run(with_apfl(setting, "1"), *world);
    setting.erase("topology.placement");
    setting["algorithm.name"] = "localonly";
    // Plain steps of LocalOnly are a part of the gradient products, and round in another way.
    EXPECT_LT(distance(result.personal, run(tiny_keys(setting), *world).personal),
              setting.contains("run.dtype") ? 1e-5 : 1e-12);
  }
}

TEST(APFL, NotesTheMeanOfAlpha) {
  const auto world = world_communicator(60);
  const Keys keys = with_apfl({}, "0.4", "adaptive");
  const TinyResult result = run(keys, *world);
  if (world->rank() != 0) return;
  const std::vector<double> series = own_series(keys, result, "alpha");
  EXPECT_DOUBLE_EQ(series.front(), 0.4) << "v and w are the same model before the first training";
  const std::vector<double> alpha = reference::apfl(reference::make_problem(keys), 0.4, true).alpha;
  double sum = 0;
  for (std::size_t k = 0; k < alpha.size(); ++k) sum += k == 3 ? 0 : alpha[k];  // 3 cannot train
  EXPECT_NEAR(series.back(), sum / 6, 1e-12);
}

TEST(APFL, AlphaStaysBetweenZeroAndOne) {
  const Keys keys = with_apfl({{"train.lr", "1.5"}, {"run.rounds", "8"}}, "0.9", "adaptive");
  const reference::APFLOutcome expected = reference::apfl(reference::make_problem(keys), 0.9, true);
  bool at_a_bound = false;
  for (const double alpha : expected.alpha) at_a_bound = at_a_bound || alpha == 0 || alpha == 1;
  ASSERT_TRUE(at_a_bound);
  const auto world = world_communicator(60);
  const TinyResult result = run(keys, *world);
  if (world->rank() != 0) return;
  for (const double alpha : own_series(keys, result, "alpha")) {
    EXPECT_GE(alpha, 0);
    EXPECT_LE(alpha, 1);
  }
}

TEST(APFL, ResumesWithItsAlphas) {
  const Keys keys =
      with_apfl({{"run.rounds", "5"}, {"topology.participation", "0.6"}}, "0.4", "adaptive");
  expect_goes_on(keys, {3});
}

}  // namespace
}  // namespace fedhpc::testing
