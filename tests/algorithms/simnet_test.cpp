#include <cmath>
#include <string>

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "fedhpc/codecs/codec.hpp"
#include "fedhpc/comm/session.hpp"

#include "fixtures/simnet_case.hpp"

namespace fedhpc::testing {
namespace {

using reference::SimNetOutcome;
using reference::SimNetRound;
using reference::SimNetSettings;

/// The reference of `keys`, what it sends going through the codec that the run's goes through.
SimNetOutcome expected_of(const Keys& keys, SimNetSettings settings) {
  const CodecChoice choice{.name = own_value(keys, "codec", "dense"),
                           .k = std::stoll(own_value(keys, "k", "16"))};
  const std::shared_ptr<Codec> codec = choice.make();
  settings.transmitted = [codec](const Tensor& row) {
    const Tensor rows = row.unsqueeze(0).clone();
    codec->transmit_(rows);
    return rows.squeeze(0);
  };
  return reference::simnet(reference::make_problem(keys), settings);
}

/// A series is what the rounds of the reference have noted.
void expect_series(const Keys& keys, const TinyResult& result, const SimNetOutcome& expected,
                   const std::string& name, double SimNetRound::*member, double bound) {
  const std::vector<double> actual = own_series(keys, result, name);
  ASSERT_EQ(actual.size(), expected.rounds.size()) << name;
  for (std::size_t t = 0; t < actual.size(); ++t) {
    const double value = expected.rounds[t].*member;
    EXPECT_EQ(std::isnan(actual[t]), std::isnan(value)) << name << " of round " << t + 1;
    if (std::isnan(value)) continue;
    EXPECT_NEAR(actual[t], value, bound) << name << " of round " << t + 1;
  }
}

class SimNetReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(SimNetReference, EqualsPlainLoop) {
  const Keys keys = with_simnet(GetParam().changes);
  const SimNetSettings settings = simnet_settings_of(keys);
  const SimNetOutcome expected = expected_of(keys, settings);
  if (settings.lambda > 0 && settings.personal != SimNetSettings::Personal::None &&
      settings.graph.neighbours > 0) {
    SimNetSettings alone = settings;
    alone.lambda = 0;
    ASSERT_GT(
        distance(flatten_all(expected.personal), flatten_all(expected_of(keys, alone).personal)),
        1e-3)
        << "the network matters";
  }
  const TinyResult result = expect_equals_reference(keys, expected.personal, expected.train_loss,
                                                    GetParam().single_bound);
  if (world_communicator(60)->rank() != 0) return;
  expect_series(keys, result, expected, "primal_residual", &SimNetRound::primal, 1e-8);
  expect_series(keys, result, expected, "dual_residual", &SimNetRound::dual, 1e-8);
  expect_series(keys, result, expected, "admm_steps", &SimNetRound::steps, 0);
  expect_series(keys, result, expected, "shrinkage", &SimNetRound::shrinkage, 1e-9);
  expect_series(keys, result, expected, "plateaus", &SimNetRound::plateaus, 1e-9);
  expect_series(keys, result, expected, "distortion", &SimNetRound::distortion, 1e-9);
}

INSTANTIATE_TEST_SUITE_P(
    Networks, SimNetReference,
    ::testing::Values(
        ReferenceCase{"euclidean", {}},
        ReferenceCase{"manhattan", {{"algorithm.p", "1"}, {"algorithm.lambda", "0.004"}}},
        ReferenceCase{"chebyshev", {{"algorithm.p", "infinity"}, {"algorithm.lambda", "0.05"}}},
        ReferenceCase{"chebyshev_body",
                      {{"algorithm.p", "infinity"},
                       {"algorithm.personal", "body"},
                       {"algorithm.lambda", "0.05"},
                       {"train.block", "3"}}},
        ReferenceCase{"no_network", {{"algorithm.lambda", "0"}}},
        ReferenceCase{"no_neighbours", {{"algorithm.neighbours", "0"}}},
        ReferenceCase{"everybody", {{"algorithm.neighbours", "20"}}},
        ReferenceCase{"gaussian_weights",
                      {{"algorithm.edge_weights", "gaussian"}, {"algorithm.p", "1"}}},
        ReferenceCase{"fourier_features",
                      {{"algorithm.kernel", "fourier"},
                       {"algorithm.fourier_features", "64"},
                       {"algorithm.edge_weights", "gaussian"}}},
        ReferenceCase{"covariances",
                      {{"algorithm.graph", "feature"}, {"algorithm.edge_weights", "gaussian"}}},
        ReferenceCase{"logarithms_of_covariances",
                      {{"algorithm.graph", "feature"},
                       {"algorithm.covariance_distance", "log_euclidean"},
                       {"algorithm.edge_weights", "gaussian"}}},
        ReferenceCase{"local_models",
                      {{"algorithm.graph", "model"},
                       {"algorithm.graph_passes", "3"},
                       {"algorithm.edge_weights", "gaussian"},
                       {"train.block", "4"}}},
        ReferenceCase{"own_rho", {{"algorithm.admm_rho", "0.2"}, {"algorithm.admm_steps", "3"}}},
        ReferenceCase{"one_step", {{"algorithm.admm_steps", "1"}}},
        ReferenceCase{"tolerance",
                      {{"algorithm.admm_tolerance", "0.01"}, {"algorithm.admm_steps", "200"}}},
        ReferenceCase{"rate_of_the_shared",
                      {{"algorithm.personal_lr", "auto"}, {"run.rounds", "8"}}}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Columns, SimNetReference,
    ::testing::Values(
        ReferenceCase{"body", {{"algorithm.personal", "body"}, {"train.block", "3"}}},
        ReferenceCase{"all", {{"algorithm.personal", "all"}}},
        ReferenceCase{"none", {{"algorithm.personal", "none"}}},
        ReferenceCase{"head_over_shared", {{"algorithm.shared", "all"}}},
        ReferenceCase{"all_over_shared",
                      {{"algorithm.personal", "all"}, {"algorithm.shared", "all"}}},
        ReferenceCase{"all_over_shared_from_the_initial_model",
                      {{"algorithm.personal", "all"},
                       {"algorithm.shared", "all"},
                       {"algorithm.personal_start", "initial"}}},
        ReferenceCase{"head_from_the_initial_model", {{"algorithm.personal_start", "initial"}}},
        ReferenceCase{"all_from_zero",
                      {{"algorithm.personal", "all"},
                       {"algorithm.personal_start", "zero"},
                       {"run.rounds", "6"}}},
        ReferenceCase{"batch_norm_head", with_batch_norm({{"train.local_epochs", "0"}}),
                      kBatchNormBound},
        ReferenceCase{"batch_norm_scales",
                      with_batch_norm({{"algorithm.personal", "norm"},
                                       {"train.local_epochs", "0"},
                                       {"train.block", "4"}}),
                      kBatchNormBound},
        ReferenceCase{"batch_norm_all",
                      with_batch_norm({{"algorithm.personal", "all"}, {"train.local_epochs", "0"}}),
                      kBatchNormBound},
        ReferenceCase{"batch_norm_body_over_shared",
                      with_batch_norm({{"algorithm.personal", "body"},
                                       {"algorithm.shared", "all"},
                                       {"algorithm.graph", "model"},
                                       {"algorithm.graph_passes", "2"},
                                       {"train.local_steps", "3"},
                                       {"train.local_epochs", "0"}}),
                      kBatchNormBound}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Clients, SimNetReference,
    ::testing::Values(
        ReferenceCase{"clipped", {{"train.clip_norm", "0.1"}, {"train.block", "3"}}},
        ReferenceCase{"several_steps", {{"train.local_steps", "5"}, {"train.block", "4"}}},
        ReferenceCase{"epochs", {{"train.local_epochs", "2"}, {"train.local_steps", "0"}}},
        ReferenceCase{"full_batch", {{"train.batch_size", "0"}, {"train.block", "3"}}},
        ReferenceCase{"some_clients", {{"topology.participation", "0.4"}, {"run.rounds", "6"}}},
        ReferenceCase{"one_client",
                      {{"topology.participation", "0.15"},
                       {"run.rounds", "4"},
                       {"algorithm.personal_lr", "0.1"}}},
        ReferenceCase{"of_edges",
                      {{"topology.participation", "0.5"},
                       {"topology.edges", "4"},
                       {"run.rounds", "6"},
                       {"algorithm.personal", "all"}}}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Uploads, SimNetReference,
    ::testing::Values(
        ReferenceCase{"plateaus", {{"algorithm.gamma", "0.01"}}},
        ReferenceCase{"plateaus_of_all",
                      {{"algorithm.gamma", "0.02"},
                       {"algorithm.personal", "all"},
                       {"train.local_steps", "4"},
                       {"train.block", "4"}}},
        ReferenceCase{"fewer_plateaus_first",
                      {{"algorithm.gamma", "0.1"},
                       {"algorithm.gamma_schedule", "inverse"},
                       {"run.rounds", "5"}}},
        ReferenceCase{"fewer_plateaus_at_first",
                      {{"algorithm.gamma", "0.05"},
                       {"algorithm.gamma_schedule", "inverse_sqrt"},
                       {"run.rounds", "5"}}},
        ReferenceCase{"run_length",
                      {{"algorithm.gamma", "0.01"}, {"algorithm.codec", "run_length"}}},
        ReferenceCase{"clusters", {{"algorithm.codec", "kmeans"}, {"algorithm.k", "4"}}},
        ReferenceCase{
            "clusters_of_plateaus",
            {{"algorithm.gamma", "0.01"}, {"algorithm.codec", "kmeans"}, {"algorithm.k", "8"}}},
        ReferenceCase{"batch_norm_plateaus",
                      with_batch_norm({{"algorithm.gamma", "0.005"},
                                       {"train.local_epochs", "0"},
                                       {"train.block", "4"}}),
                      kBatchNormBound}),
    name_of);

TEST(SimNet, NeighboursMoveWhereNobodyTrains) {
  // Client 3, which has no samples, is alone in round 5.
  const auto world = world_communicator(60);
  const Keys keys = with_simnet(
      {{"topology.participation", "0.15"}, {"algorithm.personal_lr", "0.1"}, {"run.rounds", "5"}});
  const SimNetOutcome expected = expected_of(keys, simnet_settings_of(keys));
  ASSERT_TRUE(std::isnan(expected.train_loss.back()));
  const TinyResult result = run(keys, *world);
  EXPECT_LT(distance(result.personal, flatten_all(expected.personal)), 1e-9);
  Keys before = keys;
  before["run.rounds"] = "4";
  EXPECT_GT(distance(run(before, *world).personal, result.personal), 1e-6);
  if (world->rank() != 0) return;
  expect_series(keys, result, expected, "primal_residual", &SimNetRound::primal, 1e-8);
  expect_series(keys, result, expected, "shrinkage", &SimNetRound::shrinkage, 1e-9);
}

/// The run's graph is the reference's, on any ranks, in all spaces.
TEST(SimNet, JoinsTheNearestClients) {
  const auto world = world_communicator(60);
  for (const Keys& changes : std::vector<Keys>{
           {},
           {{"algorithm.kernel", "fourier"}},
           {{"algorithm.graph", "feature"}},
           {{"algorithm.graph", "feature"}, {"algorithm.covariance_distance", "log_euclidean"}},
           {{"algorithm.graph", "model"}, {"train.block", "4"}}}) {
    for (const std::string neighbours : {"1", "2", "4"}) {
      Keys keys = with_simnet(changes);
      keys["algorithm.neighbours"] = neighbours;
      keys["algorithm.edge_weights"] = "gaussian";
      const reference::ClientGraph expected =
          reference::client_graph(reference::make_problem(keys), graph_settings_of(keys));
      const auto [edges, weights] = graph_of(keys, *world);
      ASSERT_EQ(edges.size(0), static_cast<std::int64_t>(expected.edges.size()));
      for (std::size_t m = 0; m < expected.edges.size(); ++m) {
        const Tensor edge = edges[static_cast<std::int64_t>(m)];
        EXPECT_EQ(edge[0].item<std::int64_t>(), expected.edges[m].first);
        EXPECT_EQ(edge[1].item<std::int64_t>(), expected.edges[m].second);
      }
      EXPECT_LT(distance(weights, at::tensor(expected.weights, at::kDouble)), 1e-8);
    }
  }
}

TEST(SimNet, ComparesModelsTrainedAtTheRateOfRound1) {
  const auto world = world_communicator(60);
  Keys keys = with_simnet({{"algorithm.graph", "model"}, {"algorithm.edge_weights", "gaussian"}});
  const auto [edges, weights] = graph_of(keys, *world);
  for (const Keys& schedule : std::vector<Keys>{
           {{"train.lr_schedule", "exponential"}, {"train.lr_decay", "0.5"}},
           {{"train.lr_warmup", "3"}, {"train.lr_warmup_start", "1"}, {"train.lr_decay", "0.5"}}}) {
    Keys scheduled = keys;
    scheduled.insert(schedule.begin(), schedule.end());
    const auto [same_edges, same_weights] = graph_of(scheduled, *world);
    EXPECT_TRUE(same_edges.equal(edges));
    EXPECT_TRUE(same_weights.equal(weights));
  }
}

TEST(SimNet, BooksWhatItsUploadsTake) {
  const auto world = world_communicator(60);
  const Keys keys = with_simnet({{"algorithm.gamma", "0.05"}});
  Keys short_keys = keys;
  short_keys["algorithm.codec"] = "run_length";
  const TinyResult dense = run(keys, *world);
  const TinyResult runs = run(short_keys, *world);
  EXPECT_TRUE(runs.personal.equal(dense.personal)) << "lossless";
  if (world->rank() != 0) return;
  const auto p = static_cast<double>(reference::make_problem(keys).layout->size());
  const std::vector<double> plateaus = own_series(keys, dense, "plateaus");
  for (std::size_t t = 0; t < dense.metrics.size(); ++t) {
    EXPECT_EQ(bytes_up(dense.metrics[t]), 7 * 8 * p);
    EXPECT_EQ(bytes_down(dense.metrics[t]), 7 * 8 * p);
    EXPECT_EQ(bytes_down(runs.metrics[t]), 7 * 8 * p);
    // A plateau takes its value and log2 P bits; client 3 sends one of zeros.
    const double bits = std::ceil(std::log2(p));
    const double expected = (6 * plateaus[t] + 1) * (64 + bits) / 8;
    EXPECT_GE(bytes_up(runs.metrics[t]), expected);
    EXPECT_LE(bytes_up(runs.metrics[t]), expected + 7);
  }
}

TEST(SimNet, RefusesAnythingButPlainSteps) {
  EXPECT_FALSE(refuses(with_simnet()));
  for (const Keys& changes : std::vector<Keys>{{{"train.optimizer", "adam"}},
                                               {{"train.optimizer", "momentum"}},
                                               {{"train.momentum", "0.5"}},
                                               {{"train.weight_decay", "0.01"}},
                                               {{"train.lr", "0"}},
                                               {{"algorithm.p", "3"}},
                                               {{"algorithm.lambda", "-1"}},
                                               {{"algorithm.personal_lr", "0"}},
                                               {{"algorithm.admm_rho", "0"}},
                                               {{"algorithm.admm_steps", "0"}},
                                               {{"algorithm.gamma", "-0.1"}},
                                               {{"algorithm.k", "0"}},
                                               {{"algorithm.neighbours", "-1"}}}) {
    EXPECT_TRUE(refuses(with_simnet(changes)))
        << changes.begin()->first << " = " << changes.begin()->second;
  }
}

}  // namespace
}  // namespace fedhpc::testing
