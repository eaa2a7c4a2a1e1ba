#include <string>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/fine_tuning_case.hpp"
#include "reference/fedprox_ft_reference.hpp"

namespace fedhpc::testing {
namespace {

Keys with_fedprox_ft(Keys changes, const std::string& mu, const std::string& start = "fine_tuned") {
  changes.insert(
      {{"algorithm.name", "fedprox_ft"}, {"algorithm.mu", mu}, {"algorithm.start", start}});
  return tiny_keys(changes);
}

class FedProxFTReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(FedProxFTReference, EqualsPlainLoop) {
  for (const std::string start : {"fine_tuned", "received"}) {
    SCOPED_TRACE(start);
    const Keys keys = with_fedprox_ft(GetParam().changes, "0.7", start);
    const reference::Problem problem = reference::make_problem(keys);
    const reference::FineTunedOutcome expected =
        reference::fedprox_ft(problem, local_start_of(keys), 0.7);
    ASSERT_GT(distance(expected.outcome.global,
                       reference::fedprox_ft(problem, local_start_of(keys), 0).outcome.global),
              1e-3)
        << "the proximal term matters";
    expect_equals_fine_tuned(keys, expected, GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, FedProxFTReference, ::testing::ValuesIn(all_cases()), name_of);

TEST(FedProxFT, WithoutItsTermIsFedAvgFTBitForBit) {
  const auto world = world_communicator(60);
  for (const std::string start : {"fine_tuned", "received"}) {
    for (const Keys& setting :
         {Keys{}, Keys{{"run.dtype", "float32"}, {"topology.participation", "0.4"}},
          with_batch_norm()}) {
      Keys plain = setting;
      plain["algorithm.name"] = "fedavg_ft";
      plain["algorithm.start"] = start;
      expect_same_bits(run(with_fedprox_ft(setting, "0", start), *world),
                       run(tiny_keys(plain), *world), *world);
    }
  }
}

TEST(FedProxFT, TheTermLeavesFineTuningAlone) {
  // In the first round everybody tunes the initial model.
  const auto world = world_communicator(60);
  const Keys once{{"run.rounds", "1"}};
  const Keys keys = with_fedprox_ft(once, "9");
  const TinyResult strong = run(keys, *world);
  const TinyResult weak = run(with_fedprox_ft(once, "0"), *world);
  EXPECT_GT(distance(strong.global, weak.global), 1e-2);
  if (world->rank() != 0) return;
  EXPECT_EQ(own_series(keys, strong, kReceptionAccuracy),
            own_series(keys, weak, kReceptionAccuracy));
}

TEST(FedProxFT, EvaluationLeavesNoTrace) {
  expect_evaluation_leaves_no_trace(with_fedprox_ft({{"topology.participation", "0.6"}}, "0.7"));
}

}  // namespace
}  // namespace fedhpc::testing
