#include <cmath>
#include <string>

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "fedhpc/codecs/codec.hpp"
#include "fedhpc/comm/session.hpp"

#include "fixtures/edge_bytes.hpp"
#include "fixtures/reference_case.hpp"
#include "reference/sfedhp_reference.hpp"

namespace fedhpc::testing {
namespace {

/// The paper's one batch per edge round; four edges.
Keys with_sfedhp(Keys changes) {
  changes.insert({{"algorithm.name", "sfedhp"},
                  {"topology.edges", "4"},
                  {"train.local_epochs", "0"},
                  {"train.local_steps", "1"},
                  {"algorithm.lambda1", "7"},
                  {"algorithm.lambda2", "5"},
                  {"algorithm.edge_rounds", "3"},
                  {"algorithm.inner_steps", "3"},
                  {"algorithm.personal_lr", "0.06"}});
  return tiny_keys(changes);
}

/// Steps on images by convolutions with batch norm.
Keys images(Keys changes) {
  changes.insert({"train.local_epochs", "0"});
  return with_batch_norm(changes);
}

/// Penalties whose steps are stable (eta gamma < rho), strong enough for some entries to vanish.
Keys sparse(Keys changes = {}) {
  changes.insert({{"algorithm.gamma1", "0.15"},
                  {"algorithm.gamma2", "0.1"},
                  {"algorithm.rho", "0.1"},
                  {"algorithm.zero_threshold", "0.02"}});
  return changes;
}

reference::SFedHPSettings settings_of(const Keys& keys) {
  reference::SFedHPSettings settings;
  const auto read = [&](const std::string& key, auto& value) {
    const std::string text = own_value(keys, key, "");
    if (!text.empty()) value = static_cast<std::decay_t<decltype(value)>>(std::stod(text));
  };
  read("lambda1", settings.lambda1);
  read("lambda2", settings.lambda2);
  read("gamma1", settings.gamma1);
  read("gamma2", settings.gamma2);
  read("rho", settings.rho);
  read("beta", settings.beta);
  read("edge_rounds", settings.edge_rounds);
  read("inner_steps", settings.inner_steps);
  read("accuracy", settings.accuracy);
  read("personal_lr", settings.personal_lr);
  read("zero_threshold", settings.zero_threshold);
  read("gamma_density", settings.gamma_density);
  read("gamma_rounds", settings.gamma_rounds);
  read("gamma_later", settings.gamma_later);
  const CodecChoice choice{.name = own_value(keys, "codec", "dense"),
                           .k = std::stoll(own_value(keys, "k", "16"))};
  const std::shared_ptr<Codec> codec = choice.make();
  settings.transmitted = [codec](const Tensor& row) {
    const Tensor rows = row.unsqueeze(0).clone();
    codec->transmit_(rows);
    return rows.squeeze(0);
  };
  settings.restart_every_step = own_value(keys, "restart", "step") == "step";
  using enum reference::GammaSchedule;
  settings.gamma_schedule = std::map<std::string, reference::GammaSchedule>{
      {"constant", Constant},
      {"either", Either},
      {"both", Both},
      {"each", Each}}.at(own_value(keys, "gamma_schedule", "either"));
  return settings;
}

reference::SFedHPOutcome expected_of(const Keys& keys) {
  reference::Problem problem = reference::make_problem(keys);
  problem.uniform = own_value(keys, "weighting", "uniform") == "uniform";
  return reference::sfedhp(problem, settings_of(keys));
}

/// A single entry of a single model that is 0 here and not there shows.
void expect_series(const Keys& keys, const TinyResult& result, const std::string& name,
                   const std::vector<double>& expected) {
  const std::vector<double> actual = own_series(keys, result, name);
  ASSERT_EQ(actual.size(), expected.size()) << name;
  for (std::size_t t = 0; t < expected.size(); ++t) {
    EXPECT_NEAR(actual[t], expected[t], 1e-10 * expected[t]) << name << " of round " << t + 1;
  }
}

// Neighbouring numbers on the two sides of the threshold: in float32 an entry of w may vanish that
// does not in float64, which moves w by the threshold, 0.02, of a length of 0.7 to 2.
constexpr double kOneEntry = 3e-2;

class SFedHPReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(SFedHPReference, EqualsPlainLoop) {
  const Keys keys = with_sfedhp(GetParam().changes);
  const reference::SFedHPOutcome expected = expected_of(keys);
  const TinyResult result =
      expect_equals_reference(keys, expected.outcome, expected.personal, GetParam());
  if (world_communicator(60)->rank() != 0) return;
  expect_series(keys, result, "density_personal", expected.density_personal);
  expect_series(keys, result, "density_edge", expected.density_edge);
  expect_series(keys, result, "density_global", expected.density_global);
  if (GetParam().single_bound == kOneEntry) {
    EXPECT_LT(expected.density_personal.back(), 1) << "nothing has become 0";
    EXPECT_GT(expected.density_personal.back(), 0.3) << "all has";
  }
  expect_series(keys, result, "paper_bits_up", expected.bits_up);
  EXPECT_NEAR(result.metrics.back().edge_accuracy, mean_edge_accuracy(keys, expected.edges), 1e-12);
}

INSTANTIATE_TEST_SUITE_P(
    Settings, SFedHPReference,
    ::testing::Values(
        ReferenceCase{"four_edges", {}}, ReferenceCase{"one_edge", {{"topology.edges", "1"}}},
        ReferenceCase{"an_edge_per_client", {{"topology.edges", "7"}}},
        ReferenceCase{"wide_blocks", {{"train.block", "4"}}},
        ReferenceCase{"one_edge_round", {{"algorithm.edge_rounds", "1"}}},
        ReferenceCase{"theta_goes_on", {{"algorithm.restart", "round"}}},
        ReferenceCase{"theta_goes_on_in_epochs",
                      {{"algorithm.restart", "round"},
                       {"train.local_epochs", "2"},
                       {"train.local_steps", "0"},
                       {"train.block", "8"}}},
        ReferenceCase{"beta", {{"algorithm.beta", "1.3"}}},
        ReferenceCase{"samples", {{"algorithm.weighting", "samples"}}},
        ReferenceCase{"samples_an_edge_per_client",
                      {{"algorithm.weighting", "samples"}, {"topology.edges", "7"}}},
        ReferenceCase{"steps", {{"train.local_steps", "4"}, {"train.block", "3"}}},
        ReferenceCase{"epochs", {{"train.local_epochs", "2"}, {"train.local_steps", "0"}}},
        ReferenceCase{"full_batch", {{"train.batch_size", "0"}, {"train.local_steps", "2"}}},
        ReferenceCase{"some_clients_of_some_edges",
                      {{"topology.edge_participation", "0.7"},
                       {"topology.participation", "0.5"},
                       {"run.rounds", "5"}}},
        ReferenceCase{"some_clients_by_samples",
                      {{"topology.edge_participation", "0.5"},
                       {"topology.participation", "0.6"},
                       {"topology.edges", "3"},
                       {"algorithm.weighting", "samples"},
                       {"run.rounds", "5"}}},
        ReferenceCase{"momentum", {{"train.optimizer", "momentum"}, {"train.block", "8"}}},
        ReferenceCase{"clipped", {{"train.clip_norm", "0.1"}, {"train.block", "3"}}},
        ReferenceCase{"nesterov", {{"train.optimizer", "nesterov"}, {"train.momentum", "0.5"}}},
        ReferenceCase{"weight_decay", {{"train.weight_decay", "0.01"}, {"train.block", "3"}}},
        ReferenceCase{"convolutions", images({{"model.norm", "none"}})},
        ReferenceCase{"batch_norm", images({{"train.block", "3"}}), kBatchNormBound},
        ReferenceCase{"batch_norm_theta_goes_on",
                      images({{"algorithm.restart", "round"},
                              {"algorithm.beta", "1.3"},
                              {"algorithm.weighting", "samples"},
                              {"train.weight_decay", "0.01"}}),
                      kBatchNormBound},
        ReferenceCase{"batch_norm_some_clients_of_some_edges",
                      images({{"topology.edge_participation", "0.7"},
                              {"topology.participation", "0.5"},
                              {"run.rounds", "5"},
                              {"train.local_steps", "2"},
                              {"train.block", "4"}}),
                      kBatchNormBound},
        ReferenceCase{"bitmap", {{"algorithm.codec", "bitmap"}}},
        // A number may be rounded to another neighbour, or sent as another cluster: the mean of two
        // numbers of a narrow format often lies in the middle between two others.
        ReferenceCase{"bf16", {{"algorithm.codec", "bf16"}, {"run.rounds", "4"}}, 1e-2, 4e-3},
        ReferenceCase{"fp16_weighted",
                      {{"algorithm.codec", "fp16"},
                       {"algorithm.weighting", "samples"},
                       {"topology.edge_participation", "0.7"},
                       {"topology.participation", "0.5"}},
                      1e-2,
                      1e-3},
        ReferenceCase{"kmeans",
                      {{"algorithm.codec", "kmeans"}, {"algorithm.k", "16"}, {"run.rounds", "4"}},
                      5e-2}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Sparse, SFedHPReference,
    ::testing::Values(
        ReferenceCase{"four_edges", sparse(), kOneEntry},
        ReferenceCase{"without_threshold", sparse({{"algorithm.zero_threshold", "1e-9"}})},
        ReferenceCase{"one_edge", sparse({{"topology.edges", "1"}}), kOneEntry},
        ReferenceCase{"an_edge_per_client", sparse({{"topology.edges", "7"}}), kOneEntry},
        ReferenceCase{"clipped", sparse({{"train.clip_norm", "0.1"}}), kOneEntry},
        ReferenceCase{"weak",
                      sparse({{"algorithm.gamma1", "0.02"},
                              {"algorithm.gamma2", "0.02"},
                              {"algorithm.rho", "0.05"}}),
                      kOneEntry},
        ReferenceCase{"clients_only", sparse({{"algorithm.gamma2", "0"}}), kOneEntry},
        ReferenceCase{"edges_only", sparse({{"algorithm.gamma1", "0"}}), kOneEntry},
        ReferenceCase{"wide_blocks_theta_goes_on",
                      sparse({{"algorithm.restart", "round"}, {"train.block", "4"}}), kOneEntry},
        ReferenceCase{
            "steps_and_beta",
            sparse({{"train.local_steps", "4"}, {"algorithm.beta", "1.3"}, {"train.block", "8"}}),
            kOneEntry},
        ReferenceCase{"some_clients_of_some_edges",
                      sparse({{"topology.edge_participation", "0.7"},
                              {"topology.participation", "0.5"},
                              {"run.rounds", "5"}}),
                      kOneEntry},
        ReferenceCase{"some_clients_by_samples",
                      sparse({{"topology.edge_participation", "0.5"},
                              {"topology.participation", "0.6"},
                              {"topology.edges", "3"},
                              {"algorithm.weighting", "samples"},
                              {"run.rounds", "5"}}),
                      kOneEntry},
        ReferenceCase{"nesterov",
                      sparse({{"train.optimizer", "nesterov"}, {"train.momentum", "0.5"}}),
                      kOneEntry},
        ReferenceCase{"weight_decay",
                      sparse({{"train.weight_decay", "0.01"}, {"algorithm.codec", "bitmap"}}),
                      kOneEntry},
        ReferenceCase{"batch_norm", images(sparse()), kOneEntry}),
    name_of);

/// Which of the two gammas are the later ones, round by round: "--", "1-", "-2" or "12".
std::vector<std::string> switched(const reference::SFedHPOutcome& outcome, const Keys& keys) {
  const reference::SFedHPSettings settings = settings_of(keys);
  std::vector<std::string> rounds;
  for (const reference::Gammas& gammas : outcome.gammas) {
    rounds.push_back(std::string(gammas.one < settings.gamma1 ? "1" : "-") +
                     (gammas.two < settings.gamma2 ? "2" : "-"));
  }
  return rounds;
}

TEST(SFedHP, DefaultsAreThePapers) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const auto keys = [&](Keys changes) {
    changes.insert({{"algorithm.name", "sfedhp"},
                    {"topology.edges", "4"},
                    {"train.local_epochs", "0"},
                    {"train.local_steps", "1"},
                    {"train.lr", "0.05"}});
    return tiny_keys(changes);
  };
  const Keys gammas{{"algorithm.gamma1", "0.001"}, {"algorithm.gamma2", "0.001"}};
  Keys few_entries = gammas;  // of which some come to lie within rho and the threshold
  few_entries["run.rounds"] = "2";
  Keys long_run = gammas;
  long_run.insert(
      {{"run.rounds", "102"}, {"algorithm.edge_rounds", "1"}, {"algorithm.inner_steps", "1"}});
  const Keys strong{{"algorithm.gamma1", "0.5"},    {"algorithm.gamma2", "0.5"},
                    {"algorithm.rho", "0.1"},       {"algorithm.edge_rounds", "4"},
                    {"algorithm.inner_steps", "3"}, {"run.rounds", "8"}};
  // Some changes of keys, and values that would make another run of it.
  const std::vector<std::pair<Keys, Keys>> cases{
      {{{"run.rounds", "1"}}, {}},
      {few_entries, {{"algorithm.rho", "7e-5"}, {"algorithm.zero_threshold", "2e-3"}}},
      {long_run, {{"algorithm.gamma_rounds", "101"}, {"algorithm.gamma_later", "2e-6"}}},
      {strong, {{"algorithm.gamma_density", "0.3"}, {"algorithm.gamma_schedule", "both"}}}};
  for (const auto& [changes, others] : cases) {
    const reference::SFedHPOutcome expected = expected_of(keys(changes));
    const TinyResult actual = run(keys(changes), *comm);
    EXPECT_LT(distance(actual.global, expected.outcome.global), 1e-9);
    EXPECT_LT(distance(actual.personal, flatten_all(expected.personal)), 1e-9);
    for (const auto& [key, value] : others) {
      Keys other = changes;
      other[key] = value;
      EXPECT_GT(distance(expected_of(keys(other)).outcome.global, expected.outcome.global), 1e-8)
          << key;
    }
  }
}

TEST(SFedHP, ClientsStopWhereTheirProblemIsSolved) {
  const Keys keys = with_sfedhp({{"algorithm.accuracy", "0.005"},
                                 {"algorithm.inner_steps", "6"},
                                 {"train.block", "8"},
                                 {"train.local_steps", "3"}});
  for (const std::string optimizer : {"sgd", "nesterov"}) {
    for (const std::string width : {"1", "8"}) {
      Keys these = keys;
      these["train.optimizer"] = optimizer;
      these["train.block"] = width;
      const reference::SFedHPOutcome stopped = expected_of(these);
      EXPECT_GT(stopped.reached, 20);
      EXPECT_GT(stopped.not_reached, 20);
      // In float32 a gradient may be on the other side of nu: a step more or less.
      const TinyResult result = expect_equals_reference(these, stopped.outcome, 2e-3);
      EXPECT_LT(distance(result.personal, flatten_all(stopped.personal)), 1e-9);
      these["algorithm.accuracy"] = "0";
      EXPECT_GT(distance(expected_of(these).outcome.global, stopped.outcome.global), 1e-4);
    }
  }
}

TEST(SFedHP, FollowsItsGammaSchedules) {
  // The clients' models fall below the density in round 2, so that it counts from round 3 on, or
  // never; rounds count from round 5 on, or at once.
  using Expected = std::vector<std::string>;
  const std::string early = "0.8";
  const std::string never = "0.01";
  struct Case {
    std::string schedule;
    std::string density;
    std::string rounds;
    Expected expected;
  };
  const std::vector<Case> cases{
      {"constant", early, "0", Expected{"--", "--", "--", "--", "--", "--"}},
      {"either", early, "4", Expected{"--", "--", "12", "12", "12", "12"}},
      {"either", never, "4", Expected{"--", "--", "--", "--", "12", "12"}},
      {"either", never, "100", Expected{"--", "--", "--", "--", "--", "--"}},
      {"both", early, "4", Expected{"--", "--", "--", "--", "12", "12"}},
      {"both", early, "1", Expected{"--", "--", "12", "12", "12", "12"}},
      {"both", never, "0", Expected{"--", "--", "--", "--", "--", "--"}},
      {"each", early, "4", Expected{"--", "--", "1-", "1-", "12", "12"}},
      {"each", never, "1", Expected{"--", "-2", "-2", "-2", "-2", "-2"}}};
  for (const Case& one : cases) {
    SCOPED_TRACE(one.schedule + " " + one.density + " " + one.rounds);
    const Keys keys = with_sfedhp(sparse({{"run.rounds", "6"},
                                          {"algorithm.gamma1", "0.3"},
                                          {"algorithm.gamma2", "0.2"},
                                          {"algorithm.gamma_schedule", one.schedule},
                                          {"algorithm.gamma_density", one.density},
                                          {"algorithm.gamma_rounds", one.rounds},
                                          {"algorithm.gamma_later", "0.05"}}));
    const reference::SFedHPOutcome expected = expected_of(keys);
    EXPECT_EQ(switched(expected, keys), one.expected);
    const TinyResult result = expect_equals_reference(keys, expected.outcome, kOneEntry);
    EXPECT_LT(distance(result.personal, flatten_all(expected.personal)), 1e-9);
    if (world_communicator(60)->rank() != 0) continue;
    expect_series(keys, result, "density_personal", expected.density_personal);
    expect_series(keys, result, "density_edge", expected.density_edge);
  }
}

TEST(SFedHP, WhatWasOnceSparseStaysSwitched) {
  // Freed of gamma1 the clients' models are denser again in the next round.
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const Keys keys = with_sfedhp(sparse({{"run.rounds", "5"},
                                        {"algorithm.gamma1", "0.8"},
                                        {"algorithm.gamma2", "0"},
                                        {"algorithm.gamma_density", "0.8"},
                                        {"algorithm.gamma_later", "0"}}));
  const reference::SFedHPOutcome expected = expected_of(keys);
  EXPECT_LT(expected.density_personal[0], 0.78);
  EXPECT_GT(expected.density_personal[1], 0.805);
  EXPECT_EQ(expected.gammas[2].one, 0);
  EXPECT_LT(distance(run(keys, *comm).global, expected.outcome.global), 1e-9);
}

TEST(SFedHP, LaterGammasAreNeverLarger) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const Keys constant = with_sfedhp(sparse({{"algorithm.gamma_schedule", "constant"}}));
  Keys later = constant;
  later["algorithm.gamma_schedule"] = "either";
  later["algorithm.gamma_rounds"] = "1";
  later["algorithm.gamma_later"] = "5";
  EXPECT_TRUE(run(later, *comm).global.equal(run(constant, *comm).global));
  later["algorithm.gamma_later"] = "0.1";
  EXPECT_GT(distance(run(later, *comm).global, run(constant, *comm).global), 1e-3);
}

TEST(SFedHP, OneEdgeAndOneEdgeRoundIsPFedMe) {
  // lambda2 (w - phi) = lambda1 lambda2 / (lambda1 + lambda2) (w - mean of theta).
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  for (const std::string participation : {"1", "0.4"}) {
    for (const std::string beta : {"1", "1.3"}) {
      const Keys both{{"run.rounds", "5"},
                      {"topology.participation", participation},
                      {"train.local_epochs", "0"},
                      {"train.local_steps", "1"},
                      {"train.block", "3"},
                      {"algorithm.inner_steps", "4"},
                      {"algorithm.personal_lr", "0.06"},
                      {"algorithm.beta", beta}};
      Keys sfedhp = both;
      sfedhp.insert({{"topology.edges", "1"},
                     {"train.lr", "0.3"},
                     {"algorithm.lambda1", "6"},
                     {"algorithm.lambda2", "4"},
                     {"algorithm.edge_rounds", "1"}});
      Keys pfedme = both;
      pfedme.insert({{"algorithm.name", "pfedme"},
                     {"train.lr", "0.12"},
                     {"algorithm.lambda", "6"},
                     {"algorithm.restart", "step"},
                     {"algorithm.weighting", "uniform"}});
      const TinyResult actual = run(with_sfedhp(sfedhp), *comm);
      const TinyResult expected = run(tiny_keys(pfedme), *comm);
      EXPECT_EQ(actual.cohorts, expected.cohorts);
      EXPECT_GT(distance(actual.global, actual.initial), 1e-2);
      EXPECT_LT(distance(actual.global, expected.global), 1e-12);
      EXPECT_LT(distance(actual.personal, expected.personal), 1e-12);
      if (comm->rank() != 0) continue;
      for (std::size_t t = 0; t < 5; ++t) {
        EXPECT_NEAR(actual.metrics[t].train_loss, expected.metrics[t].train_loss, 1e-12);
        EXPECT_EQ(actual.metrics[t].personal_accuracy, expected.metrics[t].personal_accuracy);
      }
    }
  }
}

TEST(SFedHP, ThatGoesAllTheWayToTheMeanIsHierFAVG) {
  // With eta_1 lambda1 lambda2 / (lambda1 + lambda2) = 1, w_i becomes the mean of theta, and so
  // does phi_i where lambda2 is nothing to lambda1; where lambda1 is nothing too, theta is free.
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const Keys both{{"topology.edges", "4"},
                  {"topology.participation", "0.6"},
                  {"algorithm.edge_rounds", "3"},
                  {"algorithm.weighting", "samples"}};
  Keys sfedhp = both;
  sfedhp.insert({{"algorithm.name", "sfedhp"},
                 {"algorithm.lambda1", "1e-12"},
                 {"algorithm.lambda2", "1e-24"},
                 {"algorithm.inner_steps", "1"},
                 {"algorithm.personal_lr", "0.1"},
                 {"train.lr", "1e24"}});
  Keys hierfavg = both;
  hierfavg["algorithm.name"] = "hierfavg";
  const TinyResult actual = run(tiny_keys(sfedhp), *comm);
  const TinyResult expected = run(tiny_keys(hierfavg), *comm);
  EXPECT_LT(distance(actual.global, expected.global), 1e-10);
  if (comm->rank() != 0) return;
  EXPECT_EQ(actual.metrics.back().edge_accuracy, expected.metrics.back().edge_accuracy);
}

TEST(SFedHP, WithoutGammasNothingOfSparsityCounts) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  for (const std::string dtype : {"float64", "float32"}) {
    for (const std::string participation : {"1", "0.5"}) {
      const Keys plain = with_sfedhp({{"run.dtype", dtype},
                                      {"run.rounds", "4"},
                                      {"run.reproducible", "true"},
                                      {"topology.participation", participation},
                                      {"topology.edge_participation", participation},
                                      {"train.block", "3"}});
      Keys other = plain;
      other["algorithm.zero_threshold"] = "0.5";
      other["algorithm.rho"] = "0.3";
      other["algorithm.gamma_schedule"] = "each";
      other["algorithm.gamma_density"] = "1";
      other["algorithm.gamma_rounds"] = "1";
      other["algorithm.gamma_later"] = "0.5";
      other["algorithm.codec"] = "bitmap";
      TinyResult expected = run(plain, *comm);
      const TinyResult actual = run(other, *comm);
      // All that another codec may change is what it books.
      for (std::size_t t = 0; t < expected.metrics.size(); ++t) {
        expected.metrics[t].bytes_up_client_edge = actual.metrics.at(t).bytes_up_client_edge;
        expected.metrics[t].bytes_up_edge_cloud = actual.metrics[t].bytes_up_edge_cloud;
        expected.metrics[t].bytes_down_client_edge = actual.metrics[t].bytes_down_client_edge;
        expected.metrics[t].bytes_down_edge_cloud = actual.metrics[t].bytes_down_edge_cloud;
      }
      expect_same_bits(actual, expected, *comm);
    }
  }
}

TEST(SFedHP, BetaZeroKeepsTheGlobalModel) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const TinyResult result = run(with_sfedhp({{"algorithm.beta", "0"}}), *comm);
  EXPECT_TRUE(result.global.equal(result.initial));
  EXPECT_GT(distance(result.personal, result.initial.repeat({7})), 1e-2);
}

TEST(SFedHP, ClientsThatNeverTrainedStandAtTheGlobalModel) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const TinyResult result = run(with_sfedhp({{"topology.edges", "3"},
                                             {"topology.edge_participation", "0.4"},
                                             {"topology.participation", "0.5"},
                                             {"run.rounds", "2"}}),
                                *comm);
  expect_untrained_have(result.global, result);
}

TEST(SFedHP, BooksWhatIsNotZero) {
  // Every client has samples, so that each one's theta is in the densities; of one edge round they
  // are those of all that goes up.
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  for (const auto& [dtype, bytes] : {std::pair{"float64", 8.0}, std::pair{"float32", 4.0}}) {
    Keys keys = with_sfedhp(sparse({{"data.partition", "iid"},
                                    {"topology.edge_participation", "0.7"},
                                    {"algorithm.edge_rounds", "1"},
                                    {"algorithm.codec", "bitmap"},
                                    {"run.rounds", "6"},
                                    {"run.dtype", dtype}}));
    keys.erase("data.partition_file");
    const TinyResult result = run(keys, *comm);
    if (comm->rank() != 0) continue;
    const auto d = static_cast<double>(result.global.numel());
    const double map = std::ceil(d / 8);
    const double edges = 3;  // of four
    const std::vector<double> of_clients = own_series(keys, result, "density_personal");
    const std::vector<double> of_edges = own_series(keys, result, "density_edge");
    const std::vector<double> paper = own_series(keys, result, "paper_bits_up");
    for (std::size_t t = 0; t < 6; ++t) {
      const RoundMetrics& metrics = result.metrics[t];
      EXPECT_NEAR(metrics.bytes_up_edge_cloud, edges * (map + bytes * d * of_edges[t]), 1e-2);
      EXPECT_NEAR(metrics.bytes_up_client_edge,
                  metrics.participants * (map + bytes * d * of_clients[t]), 1e-2);
      EXPECT_NEAR(paper[t], d * (2 + 63 * of_edges[t]), 1e-2);
    }
    EXPECT_LT(of_edges.back(), 0.9);
    EXPECT_GT(of_edges.back(), 0.1);
    EXPECT_LT(of_clients.back(), 0.9);
    EXPECT_GT(of_clients.back(), 0.1);
  }
}

TEST(SFedHP, CountsBitsAsThePaper) {
  // 95 entries, of which 19 are not 0, and models that stay: 22.8 % of 64 bits an entry.
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  Keys keys =
      with_sfedhp({{"model.hidden", "7"}, {"algorithm.gamma2", "0.001"}, {"train.lr", "0"}});
  Tensor model = at::zeros({95}, at::kDouble);
  model.narrow(0, 30, 19).fill_(0.5);
  keys["model.init_file"] = model_file(model, keys);
  const TinyResult result = run(keys, *comm);
  EXPECT_TRUE(result.global.equal(model));
  if (comm->rank() != 0) return;
  for (const double bits : own_series(keys, result, "paper_bits_up")) {
    EXPECT_EQ(bits, 64 * 19 + 76 + 95);
    EXPECT_NEAR(bits / (64 * 95), 0.228, 2e-4);
  }
  EXPECT_EQ(own_series(keys, result, "density_edge").front(), 0.2);
}

TEST(SFedHP, BooksEveryEntryOfDenseModels) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  for (const auto& [dtype, bytes] : {std::pair{"float64", 8.0}, std::pair{"float32", 4.0}}) {
    const Keys keys = with_sfedhp({{"run.dtype", dtype}, {"topology.edge_participation", "0.5"}});
    const TinyResult result = run(keys, *comm);
    if (comm->rank() != 0) continue;
    const auto d = static_cast<double>(result.global.numel());
    for (std::size_t t = 0; t < result.metrics.size(); ++t) {
      expect_bytes_of_edges(result.metrics[t], 2, 3, bytes * d);  // two of four edges
      EXPECT_EQ(own_series(keys, result, "paper_bits_up")[t], 64 * d);
      EXPECT_EQ(own_series(keys, result, "density_global")[t], 1);
    }
  }
}

TEST(SFedHP, EdgeRoundsMoveNothingBetweenEdges) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const TinyResult few = run(with_sfedhp(sparse({{"algorithm.edge_rounds", "1"}})), *comm);
  const TinyResult many = run(with_sfedhp(sparse({{"algorithm.edge_rounds", "6"}})), *comm);
  EXPECT_EQ(many.world_bytes, few.world_bytes);
  EXPECT_EQ(many.leader_bytes, few.leader_bytes);
  EXPECT_GT(many.edge_bytes, few.edge_bytes);
}

TEST(SFedHP, NeedsEdges) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  EXPECT_THROW(run(with_sfedhp({{"topology.edges", "0"}}), *comm), ConfigError);
  EXPECT_THROW(run(with_sfedhp({{"topology.edges", "8"}}), *comm), ConfigError);
}

}  // namespace
}  // namespace fedhpc::testing
