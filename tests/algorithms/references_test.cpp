#include <gtest/gtest.h>

#include "fixtures/tiny_run.hpp"
#include "reference/fedavg_reference.hpp"
#include "reference/pfedme_reference.hpp"
#include "reference/sparse_fedavg_reference.hpp"
#include "reference/tdpfed_reference.hpp"

// Where a method comes down to FedAvg, so do the plain references.
namespace fedhpc::testing {
namespace {

using reference::Outcome;
using reference::Problem;

void expect_same(const Outcome& actual, const Outcome& expected) {
  EXPECT_LT(distance(actual.global, expected.global), 1e-12);
  ASSERT_EQ(actual.train_loss.size(), expected.train_loss.size());
  for (std::size_t t = 0; t < expected.train_loss.size(); ++t) {
    EXPECT_NEAR(actual.train_loss[t], expected.train_loss[t], 1e-12) << "round " << t + 1;
  }
}

Problem tiny_problem(const Keys& changes = {}) {
  return reference::make_problem(tiny_keys(changes));
}

TEST(References, OneInnerStepOfPFedMeIsAStepOfFedAvg) {
  Problem problem = tiny_problem();
  const reference::PersonalOutcome personal = reference::pfedme(
      problem,
      {.personal_lr = 0.3, .lambda = 5, .inner_steps = 1, .beta = 1, .restart_every_step = true});
  problem.optimizer.lr = problem.lr * 5 * 0.3;
  expect_same(personal.outcome, reference::fedavg(problem));
  EXPECT_GT(
      distance(reference::flatten(personal.personal[6]), reference::flatten(personal.local[6])),
      1e-6);
  EXPECT_EQ(distance(reference::flatten(personal.personal[3]), personal.outcome.global), 0)
      << "client 3 has no training sample";
}

TEST(References, TDPFedWithExactFactorsIsFedAvg) {
  Problem problem = tiny_problem({{"topology.participation", "0.4"}});
  const reference::TDPFedSettings exact{.ranks = {6, 4},
                                        .personal_lr = problem.lr,
                                        .momentum = 0,
                                        .inner_steps = 1,
                                        .act = true,
                                        .fit = true};
  const Outcome expanded = reference::tdpfed(problem, exact).outcome;
  Problem start = problem;
  start.rounds = 0;
  problem.initial = reference::unflatten(reference::tdpfed(start, exact).outcome.global,
                                         problem.initial);  // [[A_0]]
  expect_same(expanded, reference::fedavg(problem));
}

TEST(References, TDPFedMovesFactorsTowardsTheta) {
  const Problem problem = tiny_problem({{"train.lr", "0.01"}, {"train.batch_size", "0"}});
  reference::TDPFedSettings settings{.ranks = {3, 0}};
  const reference::PersonalOutcome factors = reference::tdpfed(problem, settings);
  EXPECT_LT(factors.outcome.train_loss.back(), factors.outcome.train_loss.front());
  EXPECT_LT(distance(reference::flatten(factors.local[6]), reference::flatten(factors.personal[6])),
            distance(factors.outcome.global, reference::flatten(factors.personal[6])));
  settings.act = true;
  EXPECT_GT(distance(reference::tdpfed(problem, settings).outcome.global, factors.outcome.global),
            1e-6);
}

TEST(References, SendingEverythingIsFedAvg) {
  const Problem problem = tiny_problem({{"topology.participation", "0.4"}});
  const Outcome dense = reference::fedavg(problem);
  for (const auto unsent :
       {reference::Unsent::Keep, reference::Unsent::Zero, reference::Unsent::Rescale}) {
    expect_same(reference::sparse_fedavg(problem, 1, unsent), dense);
  }
}

TEST(References, OneCoordinateOfEachClientMoves) {
  Problem problem = tiny_problem();
  problem.rounds = 1;
  const Tensor start = reference::flatten(problem.initial);
  const Outcome kept = reference::sparse_fedavg(problem, 1e-9, reference::Unsent::Keep);
  EXPECT_LE(kept.global.ne(start).sum().item<std::int64_t>(), 6);
  EXPECT_GT(kept.global.ne(start).sum().item<std::int64_t>(), 0);
  const Outcome zero = reference::sparse_fedavg(problem, 1e-9, reference::Unsent::Zero);
  EXPECT_LE(zero.global.ne(0).sum().item<std::int64_t>(), 6);
}

}  // namespace
}  // namespace fedhpc::testing
