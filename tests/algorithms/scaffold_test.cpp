#include <string>

#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/factor_case.hpp"
#include "fixtures/resumed_run.hpp"
#include "reference/fedavg_reference.hpp"
#include "reference/scaffold_reference.hpp"

namespace fedhpc::testing {
namespace {

Keys with_scaffold(Keys changes = {}) {
  changes["algorithm.name"] = "scaffold";
  return tiny_keys(changes);
}

reference::ScaffoldOutcome scaffold_of(const Keys& keys) {
  reference::Problem problem = reference::make_problem(keys);
  problem.uniform = own_value(keys, "weighting", "uniform") == "uniform";
  const auto control = own_value(keys, "control", "steps") == "gradient"
                           ? reference::Control::Gradient
                           : reference::Control::Steps;
  return reference::scaffold(problem, control,
                             {.optimizer = value_or(keys, "server.optimizer", "sgd"),
                              .lr = std::stod(value_or(keys, "server.lr", "1"))});
}

class ScaffoldReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(ScaffoldReference, EqualsPlainLoop) {
  const Keys keys = with_scaffold(GetParam().changes);
  const reference::ScaffoldOutcome expected = scaffold_of(keys);
  ASSERT_GT(reference::flatten(expected.control).norm().item<double>(), 1e-3);
  reference::Problem plain = reference::make_problem(keys);
  plain.uniform = own_value(keys, "weighting", "uniform") == "uniform";
  ASSERT_GT(distance(expected.outcome.global, reference::fedavg(plain).global), 1e-4)
      << "control variates matter";
  expect_equals_reference(keys, expected.outcome, GetParam().single_bound);
}

std::vector<ReferenceCase> settings() {
  std::vector<ReferenceCase> cases;
  for (const std::string control : {"gradient", "steps"}) {
    for (ReferenceCase one : plain_cases()) {
      one.name = control + "_" + one.name;
      one.changes["algorithm.control"] = control;
      one.single_bound = std::max(one.single_bound, 1e-4);
      cases.push_back(one);
    }
    cases.push_back({control + "_half_a_server_step",
                     {{"algorithm.control", control},
                      {"server.lr", "0.5"},
                      {"topology.participation", "0.4"},
                      {"run.rounds", "6"}}});
    cases.push_back({control + "_falling_rate",
                     with_falling_lr("round", {{"algorithm.control", control}}), 1e-4});
  }
  cases.push_back({"momentum",
                   {{"algorithm.control", "gradient"},
                    {"train.optimizer", "momentum"},
                    {"train.momentum", "0.8"}},
                   1e-4});
  cases.push_back({"server_momentum", {{"server.optimizer", "momentum"}}, 1e-4});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Settings, ScaffoldReference, ::testing::ValuesIn(settings()), name_of);

TEST(Scaffold, WithoutControlVariatesIsFedAvgBitForBit) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  for (const std::string dtype : {"float32", "float64"}) {
    Keys changes{{"run.dtype", dtype},
                 {"train.optimizer", "momentum"},
                 {"algorithm.weighting", "samples"},
                 {"topology.participation", "0.6"}};
    const Tensor expected = run(tiny_keys(changes), *comm).global;
    changes["algorithm.control"] = "none";
    EXPECT_TRUE(run(with_scaffold(changes), *comm).global.equal(expected));
  }
}

TEST(Scaffold, FirstRoundIsFedAvg) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const Keys once{{"run.rounds", "1"}, {"algorithm.weighting", "samples"}};
  EXPECT_LT(distance(run(with_scaffold(once), *comm).global, run(tiny_keys(once), *comm).global),
            1e-12)
      << "all control variates are 0";
}

TEST(Scaffold, ControlIsTheMeanOfTheClients) {
  // Client 3 has no samples: neither of the round's clients nor of all.
  const Keys keys = with_scaffold(
      {{"algorithm.weighting", "uniform"}, {"topology.participation", "0.4"}, {"run.rounds", "6"}});
  const reference::ScaffoldOutcome expected = scaffold_of(keys);
  Tensor sum = at::zeros_like(reference::flatten(expected.control));
  for (const reference::Parameters& own : expected.controls) sum += reference::flatten(own);
  EXPECT_LT(distance(reference::flatten(expected.control), sum.div(6)), 1e-12);
  expect_equals_reference(keys, expected.outcome, 1e-4);
}

TEST(Scaffold, SendsTwoModelsEachWay) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const TinyResult expected = run(tiny_keys(), *comm);
  const TinyResult result = run(with_scaffold(), *comm);
  if (comm->rank() != 0) return;
  for (std::size_t t = 0; t < result.metrics.size(); ++t) {
    EXPECT_EQ(bytes_up(result.metrics[t]), 2 * bytes_up(expected.metrics[t]));
    EXPECT_EQ(bytes_down(result.metrics[t]), 2 * bytes_down(expected.metrics[t]));
  }
}

TEST(Scaffold, GoesOnAfterAnyRound) {
  for (const std::string control : {"gradient", "steps"}) {
    const Keys keys = with_scaffold(
        {{"algorithm.control", control}, {"run.rounds", "4"}, {"topology.participation", "0.5"}});
    expect_goes_on(keys, {1, 3});
  }
}

TEST(Scaffold, SameBitsOnAnyRanksAndWidthsWhenReproducible) {
  for (const std::string control : {"gradient", "steps"}) {
    Keys keys = with_scaffold(with_batch_norm({{"run.dtype", "float32"},
                                               {"algorithm.control", control},
                                               {"topology.participation", "0.8"},
                                               {"run.reproducible", "true"}}));
    expect_same_bits_on_ranks(keys, {"1", "3"});
  }
}

TEST(Scaffold, RefusesWhatDoesNotFit) {
  EXPECT_FALSE(refuses(with_scaffold()));
  for (const std::string control : {"gradient", "none"}) {
    const Keys keys = with_scaffold({{"algorithm.control", control}, {"train.momentum", "0.5"}});
    EXPECT_FALSE(refuses_on_command_line(keys)) << "the mean of the local steps is not asked for";
  }
  for (const auto& [key, value] : Keys{{"train.optimizer", "adam"},
                                       {"train.momentum", "0.5"},
                                       {"train.weight_decay", "0.1"},
                                       {"train.lr", "0"},
                                       {"algorithm.control", "both"},
                                       {"algorithm.mu", "1"}}) {
    EXPECT_TRUE(refuses_on_command_line(with_scaffold({{key, value}}))) << key;
  }
}

}  // namespace
}  // namespace fedhpc::testing
