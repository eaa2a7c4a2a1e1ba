#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/reference_case.hpp"
#include "reference/pfedgp_reference.hpp"

namespace fedhpc::testing {
namespace {

/// Chains are short: a plain loop takes its time.
Keys with_pfedgp(Keys changes) {
  changes.insert({{"algorithm.draws", "3"},
                  {"algorithm.gibbs_steps", "2"},
                  {"algorithm.test_draws", "4"},
                  {"algorithm.test_gibbs_steps", "2"},
                  {"train.batch_size", "12"}});
  return tiny_keys_of("pfedgp", changes);
}

reference::PFedGPOutcome expected_of(const Keys& keys) {
  const auto number = [&](const std::string& key, double otherwise) {
    return std::stod(own_value(keys, key, std::to_string(otherwise)));
  };
  const auto count = [&](const std::string& key) { return std::stoll(own_value(keys, key, "0")); };
  return reference::pfedgp(reference::make_problem(keys),
                           {.outputscale = number("outputscale", 8),
                            .lengthscale = number("lengthscale", 1),
                            .jitter = number("jitter", 1e-3),
                            .draws = count("draws"),
                            .gibbs_steps = count("gibbs_steps"),
                            .test_draws = count("test_draws"),
                            .test_gibbs_steps = count("test_gibbs_steps"),
                            .scored_share = number("scored_share", 0.5),
                            .logarithms = own_value(keys, "averaging", "probability") == "log",
                            .clip = number("clip", 50),
                            .inducing_points = count("inducing_points"),
                            .inducing_deviation = number("inducing_deviation", 0.01)});
}

class PFedGPReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(PFedGPReference, EqualsPlainLoop) {
  const Keys keys = with_pfedgp(GetParam().changes);
  const reference::PFedGPOutcome expected = expected_of(keys);
  ASSERT_GT(expected.scored, 20);
  if (keys.contains("algorithm.clip")) {
    ASSERT_GT(expected.clipped, 0);
  }
  const TinyResult result = expect_equals_reference(
      keys, {.global = flatten_all(expected.personal), .train_loss = expected.train_loss},
      GetParam().single_bound);
  if (world_communicator(60)->rank() != 0) return;
  EXPECT_NEAR(result.metrics.back().personal_accuracy, expected.accuracy, 1e-12);
  EXPECT_TRUE(std::isnan(result.metrics.back().global_accuracy));
}

std::vector<ReferenceCase> cases_with_its_own_clip() {
  std::vector<ReferenceCase> cases = all_cases();
  std::erase_if(cases,
                [](const ReferenceCase& one) { return one.changes.contains("train.clip_norm"); });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Settings, PFedGPReference, ::testing::ValuesIn(cases_with_its_own_clip()),
                         name_of);

INSTANTIATE_TEST_SUITE_P(
    Classifiers, PFedGPReference,
    ::testing::Values(
        ReferenceCase{
            "more_chains",
            {{"algorithm.draws", "8"}, {"algorithm.gibbs_steps", "5"}, {"run.rounds", "2"}}},
        ReferenceCase{"logarithms", {{"algorithm.averaging", "log"}, {"train.block", "4"}}},
        ReferenceCase{"kernel",
                      {{"algorithm.outputscale", "3"},
                       {"algorithm.lengthscale", "0.5"},
                       {"algorithm.jitter", "0.1"}}},
        ReferenceCase{"few_scored", {{"algorithm.scored_share", "0.3"}}},
        ReferenceCase{"clipped", {{"algorithm.clip", "0.1"}, {"train.block", "3"}}},
        ReferenceCase{"two_hidden", {{"model.hidden", "7,5"}}}),
    name_of);

Keys with_points(Keys changes) {
  // As long as embeddings are: the first steps move them, without leaping.
  changes.insert({{"algorithm.inducing_points", "3"}, {"algorithm.inducing_deviation", "0.5"}});
  return changes;
}

INSTANTIATE_TEST_SUITE_P(
    InducingPoints, PFedGPReference,
    ::testing::Values(
        ReferenceCase{"points", with_points({})},
        ReferenceCase{"one_point", with_points({{"algorithm.inducing_points", "1"},
                                                {"topology.participation", "0.4"},
                                                {"run.rounds", "6"}})},
        ReferenceCase{"points_full_batch",
                      with_points({{"train.batch_size", "0"}, {"train.block", "3"}})},
        ReferenceCase{"points_momentum", with_points({{"train.optimizer", "momentum"},
                                                      {"train.momentum", "0.5"},
                                                      {"train.weight_decay", "0.01"},
                                                      {"train.block", "4"}})},
        ReferenceCase{"points_logarithms", with_points({{"algorithm.averaging", "log"},
                                                        {"algorithm.weighting", "uniform"}})},
        ReferenceCase{"points_clipped", with_points({{"algorithm.clip", "0.1"}})},
        ReferenceCase{"points_batch_norm", with_batch_norm(with_points({})), kBatchNormBound}),
    name_of);

TEST(PFedGP, BooksInducingPointsBesideBodies) {
  const auto world = world_communicator(60);
  Keys keys = with_pfedgp({{"topology.participation", "0.6"}, {"algorithm.inducing_points", "5"}});
  keys["run.dtype"] = "float32";
  const TinyResult result = run(keys, *world);
  if (world->rank() != 0) return;
  for (const RoundMetrics& metrics : result.metrics) {
    EXPECT_EQ(metrics.bytes_down_client_cloud, 4 * 4 * ((8 + 1) * 6 + 4 * 5 * 6));
    EXPECT_EQ(metrics.bytes_up_client_cloud, 4 * 4 * ((8 + 1) * 6 + 4 * 5 * 6));
  }
}

TEST(PFedGP, BooksBodiesOnly) {
  const auto world = world_communicator(60);
  Keys keys = with_pfedgp({{"topology.participation", "0.6"}});
  keys["run.dtype"] = "float32";
  const TinyResult result = run(keys, *world);
  if (world->rank() != 0) return;
  for (const RoundMetrics& metrics : result.metrics) {
    EXPECT_EQ(metrics.bytes_down_client_cloud, 4 * 4 * (8 + 1) * 6);
    EXPECT_EQ(metrics.bytes_up_client_cloud, 4 * 4 * (8 + 1) * 6);
  }
}

TEST(PFedGP, DrawsHangOnTheSeedTheClientTheRoundAndTheStep) {
  const auto loss = [&](const Keys& changes) {
    const TinyResult result = run(with_pfedgp(changes), *local_communicator());
    return result.metrics.back().train_loss;
  };
  // At a rate of 0 all that differs between rounds is what is drawn.
  const Keys still{{"train.lr", "0"}, {"train.batch_size", "0"}, {"run.rounds", "1"}};
  Keys later = still;
  later["run.rounds"] = "2";
  EXPECT_NE(loss(still), loss(later));
  Keys longer = still;
  longer["train.local_epochs"] = "1";
  EXPECT_NE(loss(still), loss(longer));
}

TEST(PFedGP, ScoresValidationSamplesInTheSameWay) {
  // What is set aside is as the test samples are: classifiers tell both apart, and better than the
  // untrained head that the models have would.
  const auto world = world_communicator(60);
  Keys keys = with_pfedgp({{"data.partition", "natural"},
                           {"data.samples_per_client", "40"},
                           {"data.validation_fraction", "0.3"},
                           {"algorithm.test_draws", "20"},
                           {"run.rounds", "1"}});
  keys.erase("data.partition_file");
  const TinyResult result = run(keys, *world);
  if (world->rank() != 0) return;
  const RoundMetrics& metrics = result.metrics.back();
  EXPECT_GT(metrics.personal_accuracy, 0.5);
  EXPECT_NEAR(metrics.validation_personal_accuracy, metrics.personal_accuracy, 0.25);
  EXPECT_TRUE(std::isfinite(metrics.validation_personal_loss));
  EXPECT_TRUE(std::isnan(metrics.validation_global_accuracy));
}

TEST(PFedGP, OfNothingButAClassifierSendsNothing) {
  const auto world = world_communicator(60);
  const TinyResult result = run(with_pfedgp({{"model.name", "mlr"}}), *world);
  EXPECT_TRUE(result.personal.equal(result.initial));
  if (world->rank() != 0) return;
  EXPECT_EQ(bytes_up(result.metrics.back()) + bytes_down(result.metrics.back()), 0);
  EXPECT_GT(result.metrics.back().personal_accuracy, 0.4);
}

}  // namespace
}  // namespace fedhpc::testing
