#include <algorithm>
#include <cmath>
#include <string>

#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/message_passing_case.hpp"
#include "fixtures/resumed_run.hpp"
#include "reference/pfedsop_reference.hpp"

namespace fedhpc::testing {
namespace {

using reference::Moment;
using reference::Parameters;
using reference::Problem;

/// Steps that are long enough to matter.
Keys with_pfedsop(Keys changes = {}) {
  changes.insert({{"algorithm.name", "pfedsop"},
                  {"algorithm.personal_lr", "0.3"},
                  {"algorithm.rho", "0.5"},
                  {"algorithm.lambda", "1.5"}});
  return tiny_keys(changes);
}

reference::PFedSOPSettings settings_of(const Keys& keys) {
  const auto moment = [&](const std::string& key) {
    return own_value(keys, key, "after") == "before" ? Moment::Before : Moment::After;
  };
  reference::PFedSOPSettings settings{
      .personal_lr = std::stod(own_value(keys, "personal_lr", "")),
      .rho = std::stod(own_value(keys, "rho", "")),
      .lambda = std::stod(own_value(keys, "lambda", "")),
      .persist = moment("persist"),
      .evaluate = moment("evaluate"),
      .personalise = own_value(keys, "personalise", "true") == "true"};
  const std::string beta = own_value(keys, "beta_override", "auto");
  if (beta != "auto") settings.beta = std::stod(beta);
  return settings;
}

/// The problem of `keys`, with means that are uniform by default.
Problem problem_of(const Keys& keys) {
  Problem problem = reference::make_problem(keys);
  problem.uniform = own_value(keys, "weighting", "uniform") == "uniform";
  return problem;
}

reference::PFedSOPOutcome expected_of(const Keys& keys) {
  return reference::pfedsop(problem_of(keys), settings_of(keys));
}

/// The three percentiles of a series are those of what the reference's clients have noted.
void expect_percentiles(const Keys& keys, const TinyResult& result, const std::string& name,
                        const std::vector<std::vector<double>>& expected, double bound) {
  for (const double percent : {10.0, 50.0, 90.0}) {
    const std::string series = name + "_p" + std::to_string(std::lround(percent));
    const std::vector<double> actual = own_series(keys, result, series);
    ASSERT_EQ(actual.size(), expected.size()) << series;
    for (std::size_t t = 0; t < expected.size(); ++t) {
      const double value = reference::percentile(expected[t], percent);
      EXPECT_EQ(std::isnan(actual[t]), std::isnan(value)) << series << " of round " << t + 1;
      if (std::isnan(value)) continue;
      EXPECT_NEAR(actual[t], value, bound) << series << " of round " << t + 1;
    }
  }
}

void expect_series(const Keys& keys, const TinyResult& result,
                   const reference::PFedSOPOutcome& expected, double bound = 1e-9) {
  std::vector<std::vector<double>> angles;
  std::vector<std::vector<double>> betas;
  std::vector<std::vector<double>> step_norms;
  for (const reference::PFedSOPRound& round : expected.rounds) {
    angles.push_back(round.angles);
    betas.push_back(round.betas);
    step_norms.push_back(round.step_norms);
  }
  expect_percentiles(keys, result, "angle", angles, bound);
  expect_percentiles(keys, result, "beta", betas, bound);
  expect_percentiles(keys, result, "step_norm", step_norms, bound);
}

/// Everybody sends an update; what arrives is the last mean, but for the first round, and what new
/// clients start from.
void expect_bytes(const Keys& keys, const TinyResult& result,
                  const reference::PFedSOPOutcome& expected) {
  const auto d = static_cast<double>(expected.global_update.numel());
  const auto p = static_cast<double>(problem_of(keys).layout->size());
  for (std::size_t t = 0; t < expected.rounds.size(); ++t) {
    const auto all = static_cast<double>(expected.rounds[t].participants);
    const auto first = static_cast<double>(expected.rounds[t].new_participants);
    EXPECT_EQ(bytes_up(result.metrics[t]), 8 * all * d) << "round " << t + 1;
    EXPECT_EQ(bytes_down(result.metrics[t]), 8 * (first * p + (t > 0 ? all * d : 0)))
        << "round " << t + 1;
  }
}

class PFedSOPReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(PFedSOPReference, EqualsPlainLoop) {
  const Keys keys = with_pfedsop(GetParam().changes);
  const reference::PFedSOPOutcome expected = expected_of(keys);
  if (settings_of(keys).personalise) {
    reference::PFedSOPSettings alone = settings_of(keys);
    alone.personalise = false;
    ASSERT_GT(distance(flatten_all(expected.personal),
                       flatten_all(reference::pfedsop(problem_of(keys), alone).personal)),
              1e-3)
        << "the second-order step matters";
  }
  const TinyResult result = expect_equals_reference(keys, expected.personal, expected.train_loss,
                                                    GetParam().single_bound);
  if (world_communicator(60)->rank() != 0) return;
  if (settings_of(keys).personalise) expect_series(keys, result, expected);
  expect_bytes(keys, result, expected);
}

INSTANTIATE_TEST_SUITE_P(Settings, PFedSOPReference, ::testing::ValuesIn(plain_cases()), name_of);

/// All that is kept and evaluated, of models with running statistics and of those without.
std::vector<ReferenceCase> moments() {
  std::vector<ReferenceCase> cases;
  for (const std::string persist : {"after", "before"}) {
    for (const std::string evaluate : {"after", "before"}) {
      const std::string name = "persist_" + persist + "_evaluate_" + evaluate;
      const Keys changes{{"algorithm.persist", persist},
                         {"algorithm.evaluate", evaluate},
                         {"topology.participation", "0.6"},
                         {"run.rounds", "6"}};
      cases.push_back({name, changes});
      cases.push_back({name + "_batch_norm", with_batch_norm(changes), kBatchNormBound});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Moments, PFedSOPReference, ::testing::ValuesIn(moments()), name_of);

INSTANTIATE_TEST_SUITE_P(
    Betas, PFedSOPReference,
    ::testing::Values(
        ReferenceCase{"own", {{"algorithm.beta_override", "0"}}},
        ReferenceCase{"mixed", {{"algorithm.beta_override", "0.3"}, {"train.block", "3"}}},
        ReferenceCase{"global", {{"algorithm.beta_override", "1"}}},
        ReferenceCase{"steep", {{"algorithm.lambda", "6"}, {"run.rounds", "6"}}},
        ReferenceCase{"flat", {{"algorithm.lambda", "0"}}},
        ReferenceCase{"long_steps", {{"algorithm.rho", "0.01"}, {"algorithm.personal_lr", "1"}}},
        ReferenceCase{"not_personalised",
                      {{"algorithm.personalise", "false"}, {"algorithm.persist", "after"}}},
        ReferenceCase{"defaults",
                      {{"algorithm.personal_lr", "0.01"},
                       {"algorithm.rho", "1"},
                       {"algorithm.lambda", "1"},
                       {"run.rounds", "8"}}}),
    name_of);

/// Rounds of all clients in which x_i moves against g / (rho + ||g||^2), g being what `choose`
/// takes of the own and the mean update, and trains on from there.
template <typename Choose>
Tensor personal_models(const Problem& problem, double personal_lr, double rho, Choose&& choose) {
  std::vector<Tensor> x(problem.clients.size(), reference::flatten(problem.initial));
  std::vector<Tensor> own(x.size(), at::zeros_like(x[0]));
  Tensor mean = at::zeros_like(x[0]);
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    Tensor sum = at::zeros_like(mean);
    double clients = 0;
    for (std::size_t k = 0; k < x.size(); ++k) {
      if (problem.clients[k].labels.size(0) == 0) continue;
      const Tensor g = choose(own[k], mean);
      const Tensor start = x[k].sub(g.mul(personal_lr / (rho + g.dot(g).item<double>())));
      x[k] = reference::flatten(reference::train(problem, static_cast<std::int64_t>(k), t, {},
                                                 reference::unflatten(start, problem.initial))
                                    .parameters);
      own[k] = start.sub(x[k]).div(problem.lr);
      sum = sum.add(own[k]);
      clients += 1;
    }
    mean = sum.div(clients);
  }
  return at::cat(x);
}

TEST(PFedSOP, BetaChoosesBetweenTheOwnAndTheMeanUpdate) {
  for (const std::string beta : {"0", "1"}) {
    const Keys keys = with_pfedsop({{"algorithm.beta_override", beta}, {"run.rounds", "4"}});
    const Tensor expected = personal_models(
        problem_of(keys), 0.3, 0.5,
        [&](const Tensor& own, const Tensor& mean) { return beta == "0" ? own : mean; });
    const TinyResult result = run(keys, *world_communicator(60));
    EXPECT_LT(distance(result.personal, expected), 1e-9) << "beta = " << beta;
  }
}

TEST(PFedSOP, KeepsTheMeanUpdateThroughARoundOfNobody) {
  const Keys keys =
      with_pfedsop({{"data.partition", "file"},
                    {"data.partition_file",
                     partition_of("two_have.h5", {9, 0, 0, 0, 0, 0, 8}, {3, 3, 3, 3, 3, 3, 3})},
                    {"topology.participation", "0.3"},
                    {"run.rounds", "12"}});
  const reference::PFedSOPOutcome expected = expected_of(keys);
  int empty = 0;
  int angles = 0;  // after such a round
  for (std::size_t t = 1; t < expected.rounds.size(); ++t) {
    if (!std::isnan(expected.train_loss[t - 1])) continue;
    ++empty;
    for (const double angle : expected.rounds[t].angles) {
      ++angles;
      EXPECT_NE(angle, std::acos(0.0)) << "Delta is 0";
    }
  }
  ASSERT_GT(empty, 1);
  ASSERT_GT(angles, 0) << "take another seed";
  const TinyResult result = run(keys, *world_communicator(60));
  EXPECT_LT(distance(result.personal, flatten_all(expected.personal)), 1e-9);
}

TEST(PFedSOP, WithoutLambdaEveryBetaIsTheSame) {
  const Keys keys = with_pfedsop({{"algorithm.lambda", "0"}});
  const auto world = world_communicator(60);
  const TinyResult result = run(keys, *world);
  if (world->rank() != 0) return;
  for (const std::string name : {"beta_p10", "beta_p50", "beta_p90"}) {
    const std::vector<double> betas = own_series(keys, result, name);
    ASSERT_EQ(betas.size(), 3U);
    EXPECT_TRUE(std::isnan(betas[0])) << "everybody was new";
    EXPECT_NEAR(betas[1], 1 - std::exp(-1), 1e-14);
    EXPECT_NEAR(betas[2], 1 - std::exp(-1), 1e-14);
  }
}

TEST(PFedSOP, ALargeLambdaDividesAtOneRadian) {
  for (const std::string lambda : {"500", "2000"}) {  // exp(2000) is infinite
    const Keys keys =
        with_pfedsop({{"algorithm.lambda", lambda}, {"run.rounds", "5"}, {"run.seed", "7"}});
    std::vector<std::vector<double>> sides;
    double nearest = 1;
    int near = 0;
    int far = 0;
    for (const reference::PFedSOPRound& round : expected_of(keys).rounds) {
      sides.emplace_back();
      for (const double angle : round.angles) {
        sides.back().push_back(angle < 1 ? 1 : 0);
        (angle < 1 ? near : far) += 1;
        nearest = std::min(nearest, std::abs(angle - 1));
      }
    }
    ASSERT_GT(near, 2);
    ASSERT_GT(far, 2);
    ASSERT_GT(nearest, 0.02);
    const auto world = world_communicator(60);
    const TinyResult result = run(keys, *world);
    if (world->rank() == 0) expect_percentiles(keys, result, "beta", sides, 1e-4);
  }
}

TEST(PFedSOP, TheUpdatesOfOneClientAreParallel) {
  const auto world = world_communicator(60);
  for (const std::string dtype : {"float64", "float32"}) {
    const Keys keys = with_one_client(with_pfedsop({{"run.dtype", dtype}, {"run.rounds", "6"}}));
    const reference::PFedSOPOutcome expected = expected_of(keys);
    const TinyResult result = run(keys, *world);
    EXPECT_LT(distance(result.personal, flatten_all(expected.personal)),
              dtype == "float64" ? 1e-9 : 1e-5);
    if (world->rank() != 0) continue;
    const std::vector<double> angles = own_series(keys, result, "angle_p90");
    const std::vector<double> betas = own_series(keys, result, "beta_p10");
    for (std::size_t t = 1; t < angles.size(); ++t) {
      EXPECT_LT(angles[t], 1e-3) << dtype << ", round " << t + 1;
      EXPECT_NEAR(betas[t], reference::gompertz(0, 1.5), 1e-3) << dtype << ", round " << t + 1;
    }
  }
}

/// A linear model that is so sure of the label of client 2's only sample that its gradient is 0.
Tensor sure_of_client_2(const Keys& keys) {
  const Problem problem = problem_of(keys);
  Parameters sure;
  for (const Tensor& parameter : problem.initial) sure.push_back(at::zeros_like(parameter));
  sure.back()[problem.clients[2].labels[0].item<std::int64_t>()] = 800;  // exp(-800) = 0
  return reference::flatten(sure);
}

TEST(PFedSOP, UpdatesOfNothingAreAtRightAngles) {
  const auto world = world_communicator(60);
  Keys keys = with_pfedsop({{"model.name", "mlr"}, {"run.rounds", "4"}});
  const Tensor initial = sure_of_client_2(keys);
  keys["model.init_file"] = model_file(initial, keys);
  Problem problem = problem_of(keys);
  problem.initial = reference::unflatten(initial, problem.initial);
  const reference::PFedSOPOutcome expected = reference::pfedsop(problem, settings_of(keys));
  const std::vector<double>& angles = expected.rounds.back().angles;
  ASSERT_EQ(std::count(angles.begin(), angles.end(), std::acos(0)), 1) << "client 2's";
  const TinyResult result = run(keys, *world);
  ASSERT_TRUE(result.initial.equal(initial.repeat({7})));
  EXPECT_LT(distance(result.personal.sub(result.initial),
                     flatten_all(expected.personal).sub(result.initial)),
            1e-9);
  if (world->rank() == 0) expect_series(keys, result, expected);
}

TEST(PFedSOP, WhereNobodyHasAnUpdateNobodyMoves) {
  // One client a round: client 2, whose updates are 0, comes after client 3, which has no samples,
  // or after itself.
  const auto world = world_communicator(60);
  Keys keys = with_pfedsop(
      {{"model.name", "mlr"}, {"run.rounds", "60"}, {"topology.participation", "0.15"}});
  const Tensor initial = sure_of_client_2(keys);
  keys["model.init_file"] = model_file(initial, keys);
  Problem problem = problem_of(keys);
  problem.initial = reference::unflatten(initial, problem.initial);
  const reference::PFedSOPOutcome expected = reference::pfedsop(problem, settings_of(keys));
  EXPECT_TRUE(std::any_of(expected.rounds.begin(), expected.rounds.end(), [](const auto& round) {
    return round.step_norms == std::vector<double>{0};
  })) << "no such round";
  const TinyResult result = run(keys, *world);
  EXPECT_TRUE(result.personal.isfinite().all().item<bool>());
  EXPECT_LT(distance(result.personal.sub(result.initial),
                     flatten_all(expected.personal).sub(result.initial)),
            1e-9);
  // After itself a client's updates are parallel, of an angle that is a square root of rounding.
  if (world->rank() == 0) expect_series(keys, result, expected, 1e-7);
}

TEST(PFedSOP, NotPersonalisedItIsLocalOnlyBitForBit) {
  const auto world = world_communicator(60);
  for (const Keys& setting :
       {Keys{}, Keys{{"run.dtype", "float32"}, {"topology.participation", "0.4"}},
        with_batch_norm({{"topology.participation", "0.6"}, {"train.block", "3"}})}) {
    Keys alone = setting;
    alone["algorithm.name"] = "localonly";
    const TinyResult localonly = run(tiny_keys(alone), *world);
    Keys keys = with_pfedsop(setting);
    keys["algorithm.personalise"] = "false";
    const TinyResult result = run(keys, *world);
    EXPECT_TRUE(result.personal.equal(localonly.personal));
    if (world->rank() != 0) continue;
    for (std::size_t t = 0; t < result.metrics.size(); ++t) {
      EXPECT_EQ(result.metrics[t].train_loss, localonly.metrics[t].train_loss);
      EXPECT_EQ(result.metrics[t].personal_accuracy, localonly.metrics[t].personal_accuracy);
    }
  }
}

TEST(PFedSOP, ClientsThatNeverTrainedHaveTheInitialModel) {
  const auto world = world_communicator(60);
  for (const std::string evaluate : {"after", "before"}) {
    const TinyResult result = run(with_pfedsop({{"topology.participation", "0.3"},
                                                {"run.rounds", "3"},
                                                {"algorithm.persist", "before"},
                                                {"algorithm.evaluate", evaluate}}),
                                  *world);
    const std::vector<bool> trained = have_trained(result);
    const Tensor personal = result.personal.reshape({7, -1});
    const Tensor initial = result.initial.reshape({7, -1});
    for (std::int64_t k = 0; k < 7; ++k) {
      if (!trained[static_cast<std::size_t>(k)]) {
        EXPECT_TRUE(personal[k].equal(initial[k])) << k;
      } else if (evaluate == "after") {
        EXPECT_FALSE(personal[k].equal(initial[k])) << k;
      }
    }
  }
}

TEST(PFedSOP, RefusesAnythingButPlainSteps) {
  EXPECT_FALSE(refuses(with_pfedsop()));
  for (const Keys& changes : std::vector<Keys>{{{"train.optimizer", "adam"}},
                                               {{"train.optimizer", "momentum"}},
                                               {{"train.optimizer", "nesterov"}},
                                               {{"train.momentum", "0.5"}},
                                               {{"train.weight_decay", "0.01"}},
                                               {{"train.lr", "0"}},
                                               {{"algorithm.rho", "0"}},
                                               {{"algorithm.beta_override", "1.5"}},
                                               {{"algorithm.beta_override", "-0.1"}},
                                               {{"algorithm.beta_override", "some"}}}) {
    EXPECT_TRUE(refuses(with_pfedsop(changes)))
        << changes.begin()->first << " = " << changes.begin()->second;
  }
}

TEST(PFedSOP, UploadsMayBeCompressed) {
  const auto world = world_communicator(60);
  const Keys keys = with_pfedsop({{"algorithm.codec", "fp16"}, {"topology.participation", "0.6"}});
  const TinyResult result = run(keys, *world);
  Keys dense = keys;
  dense["algorithm.codec"] = "dense";
  const TinyResult exact = run(dense, *world);
  EXPECT_LT(distance(result.personal, exact.personal), 1e-3);
  EXPECT_FALSE(result.personal.equal(exact.personal));
  if (world->rank() != 0) return;
  for (std::size_t t = 0; t < result.metrics.size(); ++t) {
    EXPECT_EQ(4 * bytes_up(result.metrics[t]), bytes_up(exact.metrics[t]));
    EXPECT_EQ(bytes_down(result.metrics[t]), bytes_down(exact.metrics[t]));
  }
}

TEST(PFedSOP, ModelsOfBothMomentsResume) {
  for (const auto& [persist, evaluate] :
       {std::pair{"before", "after"}, std::pair{"after", "before"}}) {
    const Keys keys = with_pfedsop({{"algorithm.persist", persist},
                                    {"algorithm.evaluate", evaluate},
                                    {"topology.participation", "0.5"},
                                    {"run.rounds", "6"}});
    expect_goes_on(keys, {3});
  }
}

TEST(PFedSOP, SameBitsOnAnyRanksAndWidthsWhenReproducible) {
  for (const std::string dtype : {"float64", "float32"}) {
    Keys keys = with_pfedsop(with_batch_norm({{"run.dtype", dtype},
                                              {"algorithm.persist", "before"},
                                              {"topology.participation", "0.8"},
                                              {"run.reproducible", "true"}}));
    expect_same_bits_on_ranks(keys, {"1", "3", "8"});
  }
}

}  // namespace
}  // namespace fedhpc::testing
