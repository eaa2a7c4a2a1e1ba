#include "fedhpc/rounds/network.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/error.hpp"

namespace fedhpc {
namespace {

/// 1 s for 1, 2 and 4 MB on the links between client and edge, edge and cloud, client and cloud.
NetworkOptions lines() {
  return {.client_edge_mbps = 8,
          .edge_cloud_mbps = 16,
          .client_cloud_mbps = 32,
          .latency_ms = 500,
          .step_seconds = 0.25};
}

constexpr std::int64_t kMegabyte = 1000000;

TEST(NetworkModel, SecondsByHand) {
  const NetworkModel model(lines());
  EXPECT_TRUE(model.on());
  EXPECT_DOUBLE_EQ(model.payload_seconds(Link::ClientEdge, 3 * kMegabyte), 3.5);
  EXPECT_DOUBLE_EQ(model.payload_seconds(Link::EdgeCloud, 3 * kMegabyte), 2.0);
  EXPECT_DOUBLE_EQ(model.payload_seconds(Link::ClientCloud, 3 * kMegabyte), 1.25);
  EXPECT_DOUBLE_EQ(model.payload_seconds(Link::ClientCloud, 0), 0.5);
  EXPECT_DOUBLE_EQ(model.local_seconds(10), 2.5);
  EXPECT_THROW(model.payload_seconds(Link::ClientEdge, -1), std::logic_error);
}

TEST(NetworkModel, EveryKeyAloneTurnsItOn) {
  EXPECT_FALSE(NetworkModel().on());
  for (double NetworkOptions::*key :
       {&NetworkOptions::client_edge_mbps, &NetworkOptions::edge_cloud_mbps,
        &NetworkOptions::client_cloud_mbps, &NetworkOptions::latency_ms,
        &NetworkOptions::step_seconds}) {
    NetworkOptions options;
    options.*key = 2;
    EXPECT_TRUE(NetworkModel(options).on());
  }
  // What has no bandwidth costs its latency alone.
  const NetworkModel slow_cloud({.client_cloud_mbps = 1, .latency_ms = 10});
  EXPECT_DOUBLE_EQ(slow_cloud.payload_seconds(Link::ClientEdge, kMegabyte), 0.01);
  EXPECT_DOUBLE_EQ(slow_cloud.payload_seconds(Link::ClientCloud, kMegabyte), 8.01);
}

TEST(RoundClock, AFlatRoundLastsAsLongAsItsSlowestParticipant) {
  const auto world = world_communicator(60);
  const NetworkModel model(lines());
  RoundClock clock(model, 3);
  const auto rank = static_cast<std::int64_t>(world->rank());
  // Client 0 sends much, client 1 computes long, client 2 has no part; the last rank is slowest.
  clock.transfer(Link::ClientCloud, 0, 4 * kMegabyte);
  clock.gradients(0, 2);
  clock.transfer(Link::ClientCloud, 0, 8 * kMegabyte);
  clock.transfer(Link::ClientCloud, 1, 4 * kMegabyte);
  clock.gradients(1, 20 + 4 * rank);
  clock.transfer(Link::ClientCloud, 1, 0);
  clock.finish_edge_round();
  // Client 0: 1.5 + 0.5 + 2.5; client 1: 1.5 + 5 + rank + 0.5.
  EXPECT_EQ(clock.slowest(), std::vector<double>{7.0 + static_cast<double>(rank)});
  EXPECT_DOUBLE_EQ(clock.seconds(*world), 7.0 + world->size() - 1);
}

TEST(RoundClock, EdgeRoundsFollowEachOther) {
  const auto world = world_communicator(60);
  const NetworkModel model(lines());
  // One client on each rank; edge e is told to rank e mod ranks.
  RoundClock clock(model, 1, 5);
  const bool first = world->rank() == 0;
  const bool last = world->rank() == world->size() - 1;
  for (int edge_round = 0; edge_round < 3; ++edge_round) {
    clock.transfer(Link::ClientEdge, 0, kMegabyte);  // 1.5
    // The first rank is the slowest of the first edge round, the last of the second.
    clock.gradients(0, (edge_round == 0 && first) || (edge_round == 1 && last) ? 40 : 4);
    if (edge_round < 2) clock.transfer(Link::ClientEdge, 0, kMegabyte);
    clock.finish_edge_round();
  }
  for (std::int64_t edge = world->rank(); edge < 5; edge += world->size()) {
    clock.edge_transfer(edge, 2 * kMegabyte);         // 1.5
    clock.edge_transfer(edge, edge * 4 * kMegabyte);  // 0.5 + 2 edge
  }
  ASSERT_EQ(clock.slowest().size(), 3U);
  EXPECT_DOUBLE_EQ(clock.slowest()[2], 2.5);
  // 13 + 13 + 2.5, and edge 4's exchange: 1.5 + 8.5.
  EXPECT_DOUBLE_EQ(clock.seconds(*world), 38.5);
}

TEST(RoundClock, ARankWithoutClientsTakesPart) {
  const auto world = world_communicator(60);
  const NetworkModel model(lines());
  RoundClock clock(model, world->rank() == 0 ? 1 : 0);
  if (world->rank() == 0) clock.gradients(0, 4);
  clock.finish_edge_round();
  EXPECT_DOUBLE_EQ(clock.seconds(*world), 1.0);
}

TEST(RoundClock, IsNotANumberWhileOff) {
  const auto world = world_communicator(60);
  const NetworkModel off;
  RoundClock clock(off, 1, 1);
  clock.transfer(Link::ClientCloud, 0, 100);
  clock.gradients(0, 1);
  clock.edge_transfer(0, 100);
  clock.finish_edge_round();
  const std::int64_t calls = world->traffic().collectives;
  EXPECT_TRUE(std::isnan(clock.seconds(*world)));
  EXPECT_EQ(world->traffic().collectives, calls);
}

TEST(RoundClock, RefusesWhatItDoesNotKnow) {
  const auto world = world_communicator(60);
  const NetworkModel model(lines());
  RoundClock clock(model, 2, 1);
  EXPECT_THROW(clock.gradients(2, 1), std::logic_error);
  EXPECT_THROW(clock.gradients(-1, 1), std::logic_error);
  EXPECT_THROW(clock.edge_transfer(1, 1), std::logic_error);
  EXPECT_THROW(clock.transfer(Link::EdgeCloud, 0, 1), std::logic_error);
  clock.gradients(1, 1);
  EXPECT_THROW(clock.seconds(*world), std::logic_error) << "an edge round is not finished";
}

}  // namespace
}  // namespace fedhpc
