#include <cmath>

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "fixtures/reference_case.hpp"
#include "reference/ditto_reference.hpp"
#include "reference/fedavg_ft_reference.hpp"
#include "reference/fedavg_reference.hpp"
#include "reference/fedprox_ft_reference.hpp"
#include "reference/fedrep_reference.hpp"
#include "reference/localonly_reference.hpp"
#include "reference/pfedsop_reference.hpp"

// Where personalised methods come down to simpler ones, so do the plain references.
namespace fedhpc::testing {
namespace {

using reference::LocalStart;
using reference::Parameters;
using reference::Problem;

Problem problem_of(const Keys& changes) { return reference::make_problem(tiny_keys(changes)); }

const Keys kSomeClients{{"topology.participation", "0.4"}, {"run.rounds", "6"}};

TEST(PersonalReferences, DittoWithoutItsTermIsFedAvgBesideLocalOnly) {
  for (const Keys& changes : {kSomeClients, with_batch_norm()}) {
    const Problem problem = problem_of(changes);
    const reference::DittoOutcome ditto = reference::ditto(problem, 0);
    EXPECT_TRUE(ditto.outcome.global.equal(reference::fedavg(problem).global));
    EXPECT_TRUE(
        flatten_all(ditto.personal).equal(flatten_all(reference::localonly(problem).models)));
    const reference::DittoOutcome strong = reference::ditto(problem, 2);
    EXPECT_TRUE(strong.outcome.global.equal(ditto.outcome.global));
    EXPECT_GT(distance(flatten_all(strong.personal), flatten_all(ditto.personal)), 1e-2);
  }
}

TEST(PersonalReferences, FineTuningInFullBatchIsFedAvgOnceOrTwice) {
  for (const Keys& changes : {Keys{}, with_batch_norm()}) {
    Problem problem = problem_of(changes);
    problem.batch_size = 0;
    problem.local_epochs = 2;
    const auto received = reference::fedavg_ft(problem, LocalStart::Received);
    EXPECT_TRUE(received.outcome.global.equal(reference::fedavg(problem).global));
    const auto tuned = reference::fedprox_ft(problem, LocalStart::FineTuned, 0);
    const auto pulled = reference::fedprox_ft(problem, LocalStart::FineTuned, 0.7);
    EXPECT_GT(distance(pulled.outcome.global, tuned.outcome.global), 1e-3);
    problem.local_epochs = 4;
    const reference::Outcome fedavg = reference::fedavg(problem);
    EXPECT_LT(distance(tuned.outcome.global, fedavg.global), 1e-12);
    EXPECT_NEAR(tuned.outcome.train_loss.back(), fedavg.train_loss.back(), 1e-12);
  }
}

TEST(PersonalReferences, FedRepOfNothingButAHeadIsLocalOnly) {
  Keys changes = kSomeClients;
  changes["model.name"] = "mlr";
  const Problem problem = problem_of(changes);
  EXPECT_TRUE(flatten_all(reference::fedrep(problem, 1).personal)
                  .equal(flatten_all(reference::localonly(problem).models)));
}

TEST(PersonalReferences, FedRepMovesTheHeadAloneThenTheBodyAlone) {
  Problem problem = problem_of(with_batch_norm());
  const Parameters& start = problem.initial;
  const auto moved = [&](reference::Part part) {
    std::vector<std::string> names;
    const Parameters after = reference::train(problem, 0, 1, {.part = part}, start).parameters;
    for (std::size_t i = 0; i < start.size(); ++i) {
      if (!after[i].equal(start[i])) names.push_back(problem.layout->fields()[i].name);
    }
    return names;
  };
  EXPECT_EQ(moved(reference::Part::Head), std::vector<std::string>{"fc1.weight"});
  EXPECT_EQ(moved(reference::Part::Body),
            (std::vector<std::string>{"conv1.weight", "bn1.weight", "bn1.bias", "bn1.running_mean",
                                      "bn1.running_var", "conv2.weight", "bn2.weight", "bn2.bias",
                                      "bn2.running_mean", "bn2.running_var"}));
}

TEST(PersonalReferences, PFedSOPWithoutItsStepIsLocalOnly) {
  for (const Keys& changes : {kSomeClients, with_batch_norm(kSomeClients)}) {
    const Problem problem = problem_of(changes);
    const reference::PFedSOPOutcome plain = reference::pfedsop(problem, {.personalise = false});
    const reference::LocalOutcome localonly = reference::localonly(problem);
    EXPECT_TRUE(flatten_all(plain.personal).equal(flatten_all(localonly.models)));
    const reference::PFedSOPOutcome whole = reference::pfedsop(problem, {.personal_lr = 0.1});
    EXPECT_GT(distance(flatten_all(whole.personal), flatten_all(plain.personal)), 1e-3);
  }
}

TEST(PersonalReferences, PFedSOPsStepIsThatOfOneTerm) {
  const Tensor delta = at::arange(1, 41, at::kDouble).sin().mul(3);
  for (const double rho : {1e-3, 0.1, 1.0, 20.0}) {
    const Tensor step = reference::second_order_step(delta, rho);
    EXPECT_LT(distance(step, delta.div(rho + delta.dot(delta).item<double>())), 1e-10) << rho;
    EXPECT_LE(step.norm().item<double>(), 1 / (2 * std::sqrt(rho)));
  }
  EXPECT_TRUE(reference::second_order_step(at::zeros({5}, at::kDouble), 1)
                  .equal(at::zeros({5}, at::kDouble)));
}

TEST(PersonalReferences, PFedSOPsBetaFallsWithTheAngle) {
  const double pi = std::acos(-1);
  EXPECT_NEAR(reference::gompertz(0, 1), .934, 5e-4);
  EXPECT_NEAR(reference::gompertz(pi / 2, 1), .432, 5e-4);
  EXPECT_NEAR(reference::gompertz(pi, 1), .111, 5e-4);
  EXPECT_NEAR(reference::gompertz(pi / 2, 5), .056, 5e-4);
  EXPECT_EQ(reference::gompertz(0.5, 0), 1 - std::exp(-1));
  const Tensor a = at::tensor({3.0, 4.0});
  EXPECT_NEAR(reference::angle_between(a, at::tensor({-4.0, 3.0})), pi / 2, 1e-12);
  EXPECT_NEAR(reference::angle_between(a, a.mul(-2)), pi, 1e-7);
  EXPECT_EQ(reference::angle_between(a, a.mul(0)), std::acos(0));
}

TEST(PersonalReferences, PercentilesAreNumpys) {
  const std::vector<double> values{8, 1, 4, 2};
  EXPECT_NEAR(reference::percentile(values, 10), 1.3, 1e-14);
  EXPECT_NEAR(reference::percentile(values, 50), 3, 1e-14);
  EXPECT_NEAR(reference::percentile(values, 90), 6.8, 1e-14);
  EXPECT_TRUE(std::isnan(reference::percentile({}, 50)));
}

}  // namespace
}  // namespace fedhpc::testing
