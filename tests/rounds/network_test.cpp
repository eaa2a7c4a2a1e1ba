#include "fedhpc/rounds/network.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/error.hpp"

#include "fixtures/tiny_run.hpp"

namespace fedhpc {
namespace {

/// 1 s for 1, 2 and 4 MB on the links between client and edge, edge and cloud, client and cloud.
NetworkOptions lines() {
  return {.client_edge_mbps = {8},
          .edge_cloud_mbps = {16},
          .client_cloud_mbps = {32},
          .latency_ms = 500,
          .step_seconds = {0.25}};
}

constexpr std::int64_t kMegabyte = 1000000;

TEST(NetworkModel, SecondsByHand) {
  const NetworkModel model(lines());
  EXPECT_TRUE(model.on());
  for (const std::int64_t anybody : {0, 1, 5}) {
    EXPECT_DOUBLE_EQ(model.payload_seconds(Link::ClientEdge, anybody, 3 * kMegabyte), 3.5);
    EXPECT_DOUBLE_EQ(model.payload_seconds(Link::EdgeCloud, anybody, 3 * kMegabyte), 2.0);
    EXPECT_DOUBLE_EQ(model.payload_seconds(Link::ClientCloud, anybody, 3 * kMegabyte), 1.25);
    EXPECT_DOUBLE_EQ(model.payload_seconds(Link::ClientCloud, anybody, 1), 0.50000025);
    EXPECT_EQ(model.payload_seconds(Link::ClientCloud, anybody, 0), 0) << "nothing travels";
    EXPECT_DOUBLE_EQ(model.local_seconds(anybody, 10), 2.5);
  }
  EXPECT_THROW(model.payload_seconds(Link::ClientEdge, 0, -1), std::logic_error);
  EXPECT_THROW(model.local_seconds(-1, 1), std::logic_error);
}

TEST(NetworkModel, OfSeveralNumbersEveryClientHasItsOwnInTurn) {
  const NetworkModel model({.client_edge_mbps = {8, 16},
                            .edge_cloud_mbps = {80, 0, 8},
                            .client_cloud_mbps = {4, 0},
                            .step_seconds = {1, 2, 0.5}});
  const std::vector<double> of_client{1, 0.5, 1, 0.5};
  const std::vector<double> of_edge{0.1, 0, 1, 0.1};
  const std::vector<double> to_cloud{2, 0, 2, 0};
  const std::vector<double> of_step{1, 2, 0.5, 1};
  for (std::int64_t i = 0; i < 4; ++i) {
    const auto at = static_cast<std::size_t>(i);
    EXPECT_DOUBLE_EQ(model.payload_seconds(Link::ClientEdge, i, kMegabyte), of_client[at]);
    EXPECT_DOUBLE_EQ(model.payload_seconds(Link::EdgeCloud, i, kMegabyte), of_edge[at]);
    EXPECT_DOUBLE_EQ(model.payload_seconds(Link::ClientCloud, i, kMegabyte), to_cloud[at]);
    EXPECT_DOUBLE_EQ(model.local_seconds(i, 1), of_step[at]);
  }
}

TEST(NetworkModel, EveryKeyAloneTurnsItOn) {
  EXPECT_FALSE(NetworkModel().on());
  EXPECT_TRUE(NetworkModel({.latency_ms = 2}).on());
  for (std::vector<double> NetworkOptions::*key :
       {&NetworkOptions::client_edge_mbps, &NetworkOptions::edge_cloud_mbps,
        &NetworkOptions::client_cloud_mbps, &NetworkOptions::step_seconds}) {
    for (const std::vector<double>& numbers : {std::vector<double>{2}, {0, 2}}) {
      NetworkOptions options;
      options.*key = numbers;
      EXPECT_TRUE(NetworkModel(options).on());
    }
  }
  // What has no bandwidth costs its latency alone.
  const NetworkModel slow_cloud({.client_cloud_mbps = {1}, .latency_ms = 10});
  EXPECT_DOUBLE_EQ(slow_cloud.payload_seconds(Link::ClientEdge, 0, kMegabyte), 0.01);
  EXPECT_DOUBLE_EQ(slow_cloud.payload_seconds(Link::ClientCloud, 0, kMegabyte), 8.01);
}

TEST(NetworkModel, InARunEveryEdgeHasItsOwnLineToTheCloud) {
  const auto world = world_communicator(60);
  const std::vector<double> bits_per_second{8e6, 2e6, 1e6};  // edge 3 has the first again
  const testing::TinyResult result =
      testing::run(testing::tiny_keys_of("hierfavg", {{"topology.edge_participation", "0.3"},
                                                      {"network.edge_cloud_mbps", "8,2,1"},
                                                      {"run.rounds", "12"}}),
                   *world);
  if (world->rank() != 0) return;
  const double bits = 64 * static_cast<double>(result.global.numel());
  std::set<double> rounds;
  for (std::size_t t = 0; t < result.metrics.size(); ++t) {
    double expected = 0;
    for (const std::int64_t client : result.cohorts[t]) {
      const auto edge = static_cast<std::size_t>(client * 4 / 7);
      expected = std::max(expected, 2 * bits / bits_per_second[edge % 3]);
    }
    EXPECT_NEAR(result.metrics[t].simulated_seconds, expected, 1e-12) << "round " << t + 1;
    rounds.insert(expected);
  }
  EXPECT_EQ(rounds.size(), 3U) << "every line was used alone";
}

/// Tells a clock by the model.
struct Told {
  const NetworkModel& model;
  RoundClock& clock;

  void transfer(Link link, std::int64_t client, std::int64_t bytes) {
    clock.pass(client, model.payload_seconds(link, client, bytes));
  }
  void gradients(std::int64_t client, std::int64_t count) {
    clock.pass(client, model.local_seconds(client, count));
  }
  void edge_transfer(std::int64_t edge, std::int64_t bytes) {
    clock.pass_at_edge(edge, model.payload_seconds(Link::EdgeCloud, edge, bytes));
  }
};

TEST(RoundClock, AFlatRoundLastsAsLongAsItsSlowestParticipant) {
  const auto world = world_communicator(60);
  const NetworkModel model(lines());
  RoundClock clock(model.on(), 3);
  Told told{model, clock};
  const auto rank = static_cast<std::int64_t>(world->rank());
  // Client 0 sends much, client 1 computes long, client 2 has no part; the last rank is slowest.
  told.transfer(Link::ClientCloud, 0, 4 * kMegabyte);
  told.gradients(0, 2);
  told.transfer(Link::ClientCloud, 0, 8 * kMegabyte);
  told.transfer(Link::ClientCloud, 1, 4 * kMegabyte);
  told.gradients(1, 20 + 4 * rank);
  told.transfer(Link::ClientCloud, 1, 4 * kMegabyte);
  clock.finish_edge_round();
  // Client 0: 1.5 + 0.5 + 2.5; client 1: 1.5 + 5 + rank + 1.5.
  EXPECT_EQ(clock.slowest(), std::vector<double>{8.0 + static_cast<double>(rank)});
  EXPECT_DOUBLE_EQ(clock.seconds(*world), 8.0 + world->size() - 1);
}

TEST(RoundClock, EdgeRoundsFollowEachOther) {
  const auto world = world_communicator(60);
  const NetworkModel model(lines());
  // One client on each rank; edge e is told to rank e mod ranks.
  RoundClock clock(model.on(), 1, 5);
  Told told{model, clock};
  const bool first = world->rank() == 0;
  const bool last = world->rank() == world->size() - 1;
  for (int edge_round = 0; edge_round < 3; ++edge_round) {
    told.transfer(Link::ClientEdge, 0, kMegabyte);  // 1.5
    // The first rank is the slowest of the first edge round, the last of the second.
    told.gradients(0, (edge_round == 0 && first) || (edge_round == 1 && last) ? 40 : 4);
    if (edge_round < 2) told.transfer(Link::ClientEdge, 0, kMegabyte);
    clock.finish_edge_round();
  }
  for (std::int64_t edge = world->rank(); edge < 5; edge += world->size()) {
    told.edge_transfer(edge, 2 * kMegabyte);         // 1.5
    told.edge_transfer(edge, edge * 4 * kMegabyte);  // 0.5 + 2 edge
  }
  ASSERT_EQ(clock.slowest().size(), 3U);
  EXPECT_DOUBLE_EQ(clock.slowest()[2], 2.5);
  // 13 + 13 + 2.5, and edge 4's exchange: 1.5 + 8.5.
  EXPECT_DOUBLE_EQ(clock.seconds(*world), 38.5);
}

TEST(RoundClock, ARankWithoutClientsTakesPart) {
  const auto world = world_communicator(60);
  const NetworkModel model(lines());
  RoundClock clock(model.on(), world->rank() == 0 ? 1 : 0);
  Told told{model, clock};
  if (world->rank() == 0) told.gradients(0, 4);
  clock.finish_edge_round();
  EXPECT_DOUBLE_EQ(clock.seconds(*world), 1.0);
}

TEST(RoundClock, IsNotANumberWhileOff) {
  const auto world = world_communicator(60);
  const NetworkModel off;
  RoundClock clock(off.on(), 1, 1);
  Told told{off, clock};
  told.transfer(Link::ClientCloud, 0, 100);
  told.gradients(0, 1);
  told.edge_transfer(0, 100);
  clock.finish_edge_round();
  const std::int64_t calls = world->traffic().collectives;
  EXPECT_TRUE(std::isnan(clock.seconds(*world)));
  EXPECT_EQ(world->traffic().collectives, calls);
}

TEST(RoundClock, RefusesWhatItDoesNotKnow) {
  const auto world = world_communicator(60);
  const NetworkModel model(lines());
  RoundClock clock(model.on(), 2, 1);
  Told told{model, clock};
  EXPECT_THROW(clock.pass(2, 1), std::logic_error);
  EXPECT_THROW(clock.pass(-1, 1), std::logic_error);
  EXPECT_THROW(clock.pass_at_edge(1, 1), std::logic_error);
  told.gradients(1, 1);
  EXPECT_THROW(clock.seconds(*world), std::logic_error) << "an edge round is not finished";
}

}  // namespace
}  // namespace fedhpc
