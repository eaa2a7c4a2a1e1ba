#include <gtest/gtest.h>

#include "fixtures/reference_case.hpp"
#include "reference/fedavg_reference.hpp"
#include "reference/hierfavg_reference.hpp"
#include "reference/pfedme_reference.hpp"
#include "reference/sfedhp_reference.hpp"
#include "reference/sparse_fedavg_reference.hpp"
#include "reference/tdpfed_reference.hpp"

// Where a method comes down to FedAvg, or one to another, so do the plain references.
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
  for (const Keys& changes : {Keys{}, with_batch_norm()}) {
    Problem problem = tiny_problem(changes);
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
}

TEST(References, TDPFedWithExactFactorsIsFedAvg) {
  Problem problem = tiny_problem({{"topology.participation", "0.4"}});
  const reference::TDPFedSettings exact{
      .factorisation = {.name = "cp", .ranks = {6, 4}, .exclude = {}},
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
  reference::TDPFedSettings settings{
      .factorisation = {.name = "cp", .ranks = {3}, .exclude = {"last"}}};
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

/// Seven clients at some edges, one batch per edge round.
Problem edge_problem(const std::string& edges, const std::string& participation = "1") {
  Problem problem = tiny_problem({{"topology.edges", edges},
                                  {"topology.participation", participation},
                                  {"train.local_epochs", "0"},
                                  {"train.local_steps", "1"}});
  problem.uniform = true;
  return problem;
}

TEST(References, SFedHPOfOneEdgeAndOneEdgeRoundIsPFedMe) {
  for (const std::string participation : {"1", "0.4"}) {
    Problem problem = edge_problem("1", participation);
    problem.rounds = 5;
    problem.lr = 0.2;
    const reference::SFedHPSettings settings{
        .lambda1 = 7, .lambda2 = 5, .beta = 1.2, .edge_rounds = 1, .personal_lr = 0.06};
    const reference::SFedHPOutcome sfedhp = reference::sfedhp(problem, settings);
    problem.lr = 0.2 * 5 / (7 + 5);
    const reference::PersonalOutcome pfedme =
        reference::pfedme(problem, {.personal_lr = 0.06,
                                    .lambda = 7,
                                    .inner_steps = 5,
                                    .beta = 1.2,
                                    .restart_every_step = true});
    expect_same(sfedhp.outcome, pfedme.outcome);
    for (std::size_t k = 0; k < pfedme.personal.size(); ++k) {
      EXPECT_LT(
          distance(reference::flatten(sfedhp.personal[k]), reference::flatten(pfedme.personal[k])),
          1e-12);
    }
  }
}

TEST(References, SFedHPThatGoesAllTheWayToTheMeanIsHierFAVG) {
  // With eta_1 lambda1 lambda2 / (lambda1 + lambda2) = 1, w_i becomes the mean of theta, and so
  // does phi_i where lambda2 is nothing to lambda1; where lambda1 is nothing too, theta is free.
  Problem problem = edge_problem("4", "0.6");
  problem.uniform = false;
  problem.local_steps = 0;
  problem.local_epochs = 2;
  const reference::HierarchicalOutcome hierfavg = reference::hierfavg(problem, 3);
  problem.lr = 1e24;
  const reference::SFedHPOutcome sfedhp =
      reference::sfedhp(problem, {.lambda1 = 1e-12,
                                  .lambda2 = 1e-24,
                                  .edge_rounds = 3,
                                  .inner_steps = 1,
                                  .personal_lr = problem.optimizer.lr});
  EXPECT_LT(distance(sfedhp.outcome.global, hierfavg.outcome.global), 1e-10);
  for (std::size_t edge = 0; edge < 4; ++edge) {
    EXPECT_LT(
        distance(reference::flatten(sfedhp.edges[edge]), reference::flatten(hierfavg.edges[edge])),
        1e-10);
  }
  EXPECT_NEAR(sfedhp.outcome.train_loss.back(), hierfavg.outcome.train_loss.back(), 1e-10);
}

TEST(References, SFedHPWithoutGammasIgnoresWhatMakesSparse) {
  const Problem problem = edge_problem("4");
  const reference::SFedHPSettings plain{.edge_rounds = 3};
  reference::SFedHPSettings other = plain;
  other.rho = 0.3;
  other.zero_threshold = 0.5;
  other.gamma_schedule = reference::GammaSchedule::Each;
  other.gamma_density = 1.1;
  other.gamma_rounds = 1;
  other.gamma_later = 0.5;
  const reference::SFedHPOutcome expected = reference::sfedhp(problem, plain);
  EXPECT_TRUE(reference::sfedhp(problem, other).outcome.global.equal(expected.outcome.global));
  other.gamma1 = 0.2;
  other.gamma_schedule = reference::GammaSchedule::Constant;
  EXPECT_LT(reference::sfedhp(problem, other).density_personal.back(),
            expected.density_personal.back() - 0.2);
}

TEST(References, SFedHPPenaltiesShrinkModelsToZero) {
  Problem problem = edge_problem("4");
  problem.rounds = 6;
  const reference::SFedHPSettings sparse{.lambda1 = 7,
                                         .lambda2 = 5,
                                         .gamma1 = 0.15,
                                         .gamma2 = 0.15,
                                         .rho = 0.1,
                                         .edge_rounds = 3,
                                         .zero_threshold = 0.02,
                                         .gamma_schedule = reference::GammaSchedule::Constant};
  const reference::SFedHPOutcome result = reference::sfedhp(problem, sparse);
  const auto d = static_cast<double>(result.outcome.global.numel());
  // Remark 1: 64 bits for what is not 0, a bit for what is, a bit for each that tells which.
  for (std::size_t t = 0; t < 6; ++t) {
    EXPECT_NEAR(result.bits_up[t], d * (2 + 63 * result.density_edge[t]), 1e-9);
  }
  EXPECT_GT(result.density_global.front(), 0.8);
  EXPECT_LT(result.density_global.back(), 0.6);
  EXPECT_LT(result.density_personal.back(), 0.6);
  EXPECT_GT(result.density_personal.back(), 0.05);
}

}  // namespace
}  // namespace fedhpc::testing
