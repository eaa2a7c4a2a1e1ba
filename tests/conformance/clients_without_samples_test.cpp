#include <cmath>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"
#include "fedhpc/engine/plan.hpp"

#include "fixtures/tiny_run.hpp"

// Clients without training samples take part and change nothing, whatever the method
// (docs/decisions/0021).
namespace fedhpc::testing {
namespace {

class ClientsWithoutSamples : public ::testing::TestWithParam<std::string> {
 protected:
  /// Runs in which every round draws one client.
  static Keys keys_of_one_client(Keys changes) {
    changes.insert({"topology.participation", "0.01"});
    if (has_edge_models(GetParam())) {
      changes.insert({{"topology.edges", "7"}, {"topology.edge_participation", "0.01"}});
    }
    return tiny_keys_of(GetParam(), changes);
  }

  std::unique_ptr<Communicator> world_ = world_communicator(60);
};

TEST_P(ClientsWithoutSamples, TravelAndMoveNothing) {
  // The only one with training samples is client 6.
  const bool edges = has_edge_models(GetParam());
  Keys keys = keys_of_one_client({{"run.rounds", "1"},
                                  {"run.seed", "5"},
                                  {"network.latency_ms", "1"},
                                  {"network.step_seconds", "1000"}});
  const Keys plain{{"algorithm.zero_threshold", "0"},
                   {"algorithm.personal_start", "initial"},
                   {"algorithm.select_limit", "0"}};
  for (const auto& [key, value] : plain) {
    if (has_key(GetParam(), key)) keys[key] = value;
  }
  keys["data.partition_file"] =
      partition_of("one_has.h5", {0, 0, 0, 0, 0, 0, 20}, {3, 3, 3, 3, 3, 3, 3});
  const PlannedRun planned = plan(keys, *world_);
  const TinyResult result = run(keys, *world_);
  ASSERT_EQ(result.cohorts.front().size(), 1U);
  ASSERT_NE(result.cohorts.front().front(), 6) << "take another seed";
  EXPECT_LT(distance(result.global, result.initial), 1e-13);
  if (has_personal(models_evaluated_by(GetParam()))) {  // some adapt what has samples
    const Tensor models = result.personal.reshape({7, -1});
    const Tensor initial = result.initial.reshape({-1, models.size(1)})[0];
    for (std::int64_t k = 0; k < 6; ++k) EXPECT_LT(distance(models[k], initial), 1e-13) << k;
  }
  if (world_->rank() != 0) return;
  const RoundMetrics& metrics = result.metrics.front();
  EXPECT_TRUE(std::isnan(metrics.train_loss));
  EXPECT_EQ(metrics.participants, 1);
  const auto up = static_cast<double>(planned.up_per_client + (edges ? planned.up_per_edge : 0));
  EXPECT_EQ(bytes_up(metrics), up);
  const auto down =
      static_cast<double>(planned.down_per_client + (edges ? planned.down_per_edge : 0));
  if (GetParam() != "pfedsop") {  // whose new clients get x
    EXPECT_EQ(bytes_down(metrics), down);
  }
  EXPECT_LT(metrics.simulated_seconds, 1) << "no gradient";
  EXPECT_EQ(metrics.simulated_seconds > 0, up > 0);
}

TEST_P(ClientsWithoutSamples, MoveNoModelAfterARoundOfOthers) {
  Keys keys = keys_of_one_client({{"run.seed", "5"}, {"run.rounds", "3"}});
  const std::vector<std::vector<std::int64_t>> cohorts = run(keys, *world_).cohorts;
  std::vector<std::int64_t> samples(7, 0);
  samples.at(static_cast<std::size_t>(cohorts[0].front())) = 20;
  ASSERT_EQ(samples.at(static_cast<std::size_t>(cohorts[1].front())), 0) << "take another seed";
  ASSERT_EQ(samples.at(static_cast<std::size_t>(cohorts[2].front())), 0) << "take another seed";
  keys["data.partition_file"] = partition_of("first_has.h5", samples, {3, 3, 3, 3, 3, 3, 3});
  const TinyResult after = run(keys, *world_);
  keys["run.rounds"] = "1";
  const TinyResult before = run(keys, *world_);
  EXPECT_LT(distance(after.global, before.global), 1e-13);
  // Adapted with the batches of the round that is evaluated.
  const std::set<std::string> adapted{"fedavg_ft", "fedbabu", "fedprox_ft", "perfedavg"};
  if (has_personal(models_evaluated_by(GetParam())) && !adapted.contains(GetParam())) {
    EXPECT_LT(distance(after.personal, before.personal), 1e-13);
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, ClientsWithoutSamples, ::testing::ValuesIn(algorithm_names()),
                         [](const auto& one) { return one.param; });

std::vector<std::string> names_with_edges() {
  std::vector<std::string> names = algorithm_names();
  std::erase_if(names, [](const std::string& name) { return !has_edge_models(name); });
  return names;
}

class EdgesWithoutSamples : public ::testing::TestWithParam<std::string> {};

TEST_P(EdgesWithoutSamples, NeitherStepNorCount) {
  const auto world = world_communicator(60);
  Keys keys = tiny_keys_of(GetParam(), {{"topology.edges", "3"}});
  keys["data.partition_file"] = partition_of("idle_edge.h5", {9, 5, 7, 6, 4, 0, 0},
                                             {3, 3, 3, 3, 3, 0, 0}, {0, 0, 0, 1, 1, 2, 2});
  const TinyResult idle = run(keys, *world);
  keys["topology.edges"] = "2";
  keys["data.clients"] = "5";
  keys["data.partition_file"] =
      partition_of("two_edges.h5", {9, 5, 7, 6, 4}, {3, 3, 3, 3, 3}, {0, 0, 0, 1, 1});
  const TinyResult without = run(keys, *world);
  EXPECT_LT(distance(idle.global, without.global), 1e-12);
  if (without.personal.numel() > 0) {
    EXPECT_LT(distance(idle.personal.narrow(0, 0, without.personal.numel()), without.personal),
              1e-12);
  }
  if (world->rank() != 0) return;
  for (std::size_t t = 0; t < without.metrics.size(); ++t) {
    const RoundMetrics& a = idle.metrics[t];
    const RoundMetrics& b = without.metrics[t];
    EXPECT_EQ(a.edge_accuracy, b.edge_accuracy);
    ASSERT_EQ(a.own.size(), b.own.size());
    for (std::size_t m = 0; m < b.own.size(); ++m) EXPECT_NEAR(a.own[m], b.own[m], 1e-9) << m;
    // They take part all the same.
    EXPECT_EQ(a.bytes_up_client_edge * 5, b.bytes_up_client_edge * 7);
    EXPECT_EQ(a.bytes_down_client_edge * 5, b.bytes_down_client_edge * 7);
    EXPECT_EQ(a.bytes_up_edge_cloud * 2, b.bytes_up_edge_cloud * 3);
    EXPECT_EQ(a.bytes_down_edge_cloud * 2, b.bytes_down_edge_cloud * 3);
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, EdgesWithoutSamples, ::testing::ValuesIn(names_with_edges()),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace fedhpc::testing
