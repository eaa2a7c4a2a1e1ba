#include "fedhpc/algorithms/fednova.hpp"

#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/factor_case.hpp"
#include "fixtures/resumed_run.hpp"
#include "reference/fednova_reference.hpp"

namespace fedhpc::testing {
namespace {

Keys with_fednova(Keys changes = {}) {
  changes["algorithm.name"] = "fednova";
  return tiny_keys(changes);
}

class FedNovaReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(FedNovaReference, EqualsPlainLoop) {
  const Keys keys = with_fednova(GetParam().changes);
  const double mu = std::stod(own_value(keys, "mu", "0"));
  const reference::Problem problem = reference::make_problem(keys);
  const reference::ServerSettings server{.optimizer = value_or(keys, "server.optimizer", "sgd")};
  const reference::FedNovaOutcome expected = reference::fednova(problem, mu, server);
  const TinyResult result =
      expect_equals_reference(keys, expected.outcome, std::max(GetParam().single_bound, 1e-4));
  if (world_communicator(60)->rank() != 0) return;
  expect_series(keys, result, "effective_steps", expected.effective_steps, 1e-9);
}

std::vector<ReferenceCase> settings() {
  std::vector<ReferenceCase> cases;
  for (ReferenceCase one : all_cases()) {
    if (one.name == "adam") continue;
    if (cases.size() % 3 == 0) one.changes["algorithm.mu"] = "0.7";
    cases.push_back(one);
  }
  cases.push_back({"falling_rate", with_falling_lr("round", {{"algorithm.mu", "0.5"}})});
  cases.push_back({"server_momentum", {{"server.optimizer", "momentum"}}});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Settings, FedNovaReference, ::testing::ValuesIn(settings()), name_of);

TEST(FedNova, LengthsAreThePapers) {
  const double eta = 0.1;
  const double mu = 0.7;
  const double rho = 0.6;
  for (const int steps : {0, 1, 2, 9}) {
    const auto length = [&](OptimizerKind kind, double momentum, double of_mu) {
      return FedNova::length_of({.kind = kind, .lr = eta, .momentum = momentum}, eta, of_mu, steps);
    };
    EXPECT_DOUBLE_EQ(length(OptimizerKind::Sgd, 0, 0), steps);
    EXPECT_NEAR(length(OptimizerKind::Sgd, 0, mu), (1 - std::pow(1 - eta * mu, steps)) / (eta * mu),
                1e-12);
    EXPECT_NEAR(length(OptimizerKind::Momentum, rho, 0),
                (steps - rho * (1 - std::pow(rho, steps)) / (1 - rho)) / (1 - rho), 1e-12);
  }
}

TEST(FedNova, MoreStepsAreNeverShorter) {
  const StepRule rule{.kind = OptimizerKind::Momentum, .lr = 0.5, .momentum = 0.99};
  double before = 0;
  for (int steps = 1; steps < 60; ++steps) {
    const double length = FedNova::length_of(rule, rule.lr, /*mu=*/1, steps);
    EXPECT_GE(length, before) << steps;
    before = length;
  }
  EXPECT_NEAR(FedNova::length_of(rule, 0.5, 1, 3), 1 + 1.49 + 1.2301, 1e-12);
}

TEST(FedNova, EqualStepsAreFedAvgAndUnequalOnesAreNot) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const Keys steps{{"train.local_epochs", "0"}, {"train.local_steps", "5"}};
  EXPECT_LT(distance(run(with_fednova(steps), *comm).global, run(tiny_keys(steps), *comm).global),
            1e-12);
  Keys prox{{"train.local_epochs", "0"},     {"train.local_steps", "8"}, {"train.momentum", "0.99"},
            {"train.optimizer", "momentum"}, {"train.lr", "0.3"},        {"algorithm.mu", "2"}};
  const Tensor nova = run(with_fednova(prox), *comm).global;
  prox["algorithm.name"] = "fedprox";
  EXPECT_LT(distance(nova, run(tiny_keys(prox), *comm).global), 1e-9) << "where entries of a turn";
  EXPECT_GT(distance(run(with_fednova(), *comm).global, run(tiny_keys(), *comm).global), 1e-3);
}

TEST(FedNova, GoesOnAfterAnyRound) {
  const Keys keys = with_fednova(
      {{"run.rounds", "4"}, {"topology.participation", "0.5"}, {"server.optimizer", "momentum"}});
  expect_goes_on(keys, {1, 3});
}

TEST(FedNova, SameBitsOnAnyRanksAndWidthsWhenReproducible) {
  Keys keys = with_fednova(with_batch_norm(
      {{"run.dtype", "float32"}, {"topology.participation", "0.8"}, {"run.reproducible", "true"}}));
  expect_same_bits_on_ranks(keys, {"1", "3"});
}

TEST(FedNova, RefusesWhatDoesNotFit) {
  EXPECT_FALSE(refuses(with_fednova()));
  for (const auto& [key, value] :
       Keys{{"train.optimizer", "adam"}, {"algorithm.mu", "11"}, {"train.lr_unit", "epoch"}}) {
    Keys keys{{key, value}};
    if (key == "train.lr_unit") keys = with_falling_lr("epoch");
    EXPECT_TRUE(refuses(with_fednova(keys))) << key;
  }
}

}  // namespace
}  // namespace fedhpc::testing
