#include <string>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/reference_case.hpp"
#include "fixtures/resumed_run.hpp"
#include "reference/fedavg_reference.hpp"
#include "reference/feddyn_reference.hpp"

namespace fedhpc::testing {
namespace {

Keys with_feddyn(Keys changes = {}) {
  changes["algorithm.name"] = "feddyn";
  changes.insert({"algorithm.alpha", "0.4"});
  return tiny_keys(changes);
}

class FedDynReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(FedDynReference, EqualsPlainLoop) {
  const Keys keys = with_feddyn(GetParam().changes);
  reference::Problem problem = reference::make_problem(keys);
  problem.uniform = own_value(keys, "weighting", "uniform") == "uniform";
  const reference::Outcome expected =
      reference::feddyn(problem, std::stod(keys.at("algorithm.alpha")));
  ASSERT_GT(distance(expected.global, reference::fedavg(problem).global), 1e-3);
  expect_equals_reference(keys, expected, std::max(GetParam().single_bound, 1e-4));
}

INSTANTIATE_TEST_SUITE_P(Settings, FedDynReference, ::testing::ValuesIn(all_cases()), name_of);
INSTANTIATE_TEST_SUITE_P(FallingRate, FedDynReference, ::testing::ValuesIn(falling_lr_cases()),
                         name_of);

TEST(FedDyn, FirstRoundIsALongerStepOfFedProx) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  // 6 clients have samples: 2 of them are drawn.
  for (const auto& [participation, step] : Keys{{"1", "2"}, {"0.4", "1.33333333333333333"}}) {
    Keys once{{"run.rounds", "1"},
              {"algorithm.weighting", "uniform"},
              {"topology.participation", participation}};
    const Tensor feddyn = run(with_feddyn(once), *comm).global;
    once.insert({{"algorithm.name", "fedprox"}, {"algorithm.mu", "0.4"}, {"server.lr", step}});
    EXPECT_LT(distance(feddyn, run(tiny_keys(once), *comm).global), 1e-12) << participation;
  }
}

TEST(FedDyn, SameBitsOnAnyRanksAndWidthsWhenReproducible) {
  Keys keys = with_feddyn(with_batch_norm(
      {{"run.dtype", "float32"}, {"topology.participation", "0.8"}, {"run.reproducible", "true"}}));
  expect_same_bits_on_ranks(keys, {"1", "3"});
}

TEST(FedDyn, RefusesWhatDoesNotFit) {
  EXPECT_FALSE(refuses(with_feddyn()));
  EXPECT_TRUE(refuses(with_feddyn({{"algorithm.alpha", "0"}})));
  EXPECT_TRUE(refuses_on_command_line(with_feddyn({{"server.lr", "0.5"}})));
}

}  // namespace
}  // namespace fedhpc::testing
