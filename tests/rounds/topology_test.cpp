#include "fedhpc/rounds/topology.hpp"

#include <algorithm>
#include <set>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"
#include "fedhpc/rounds/round.hpp"

namespace fedhpc {
namespace {

TEST(Topology, DealsOutContiguousParts) {
  for (const std::int64_t clients : {1, 5, 20, 1000}) {
    for (const int ranks : {1, 3, 4, 7}) {
      std::int64_t next = 0;
      std::int64_t smallest = clients;
      std::int64_t largest = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Range range = part_of(clients, rank, ranks);
        EXPECT_EQ(range.first, next);
        next = range.last;
        smallest = std::min(smallest, range.size());
        largest = std::max(largest, range.size());
      }
      EXPECT_EQ(next, clients);
      EXPECT_LE(largest - smallest, 1);
    }
  }
}

TEST(Topology, PutsClientsOnEdges) {
  // floor(c E / N)
  EXPECT_EQ(edges_of_clients(7, 3, {}), (std::vector<std::int32_t>{0, 0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(edges_of_clients(3, 0, {}), (std::vector<std::int32_t>{-1, -1, -1}));
  EXPECT_EQ(edges_of_clients(3, 2, {1, 0, 1}), (std::vector<std::int32_t>{1, 0, 1}));
  EXPECT_THROW(edges_of_clients(3, 4, {}), ConfigError);
  EXPECT_THROW(edges_of_clients(3, 2, {1, 2, 0}), ConfigError);
}

/// Every client stands on one rank that hosts its edge, every edge on a contiguous block of ranks.
void expect_consistent(const Placement& placement) {
  std::vector<int> hosts(static_cast<std::size_t>(placement.clients()), 0);
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    const std::vector<std::int64_t> clients = placement.clients_of_rank(rank);
    EXPECT_TRUE(std::is_sorted(clients.begin(), clients.end()));
    for (const std::int64_t client : clients) {
      ++hosts[static_cast<std::size_t>(client)];
      EXPECT_TRUE(placement.edges_of_rank(rank).holds(placement.edge_of(client)));
    }
    for (std::int64_t edge = 0; edge < placement.edges(); ++edge) {
      EXPECT_EQ(placement.edges_of_rank(rank).holds(edge),
                placement.ranks_of_edge(edge).holds(rank));
    }
    EXPECT_GE(placement.edges_of_rank(rank).size(), 1);
  }
  EXPECT_EQ(std::set<int>(hosts.begin(), hosts.end()), std::set<int>{1});
}

TEST(Placement, PutsEdgesOnRanks) {
  for (const std::int64_t edges : {1, 2, 3, 4, 7}) {
    for (const int ranks : {1, 2, 3, 4, 7, 9}) {
      expect_consistent({edges_of_clients(20, edges, {}), edges, ranks});
    }
  }
}

TEST(Placement, AnEdgesClientsNeedNotBeNeighbours) {
  const std::vector<std::int32_t> scattered{2, 0, 1, 0, 2, 1, 1, 0};
  for (const int ranks : {1, 2, 3, 5}) expect_consistent({scattered, 3, ranks});
  const Placement placement(scattered, 3, 2);
  EXPECT_EQ(placement.clients_of_edge(1), (std::vector<std::int64_t>{2, 5, 6}));
  EXPECT_EQ(placement.clients_of_rank(1), (std::vector<std::int64_t>{0, 2, 4, 5, 6}));
}

TEST(Placement, WithoutEdgesDealsOutClients) {
  const Placement placement(edges_of_clients(7, 0, {}), 0, 3);
  EXPECT_EQ(placement.clients_of_rank(1), (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(placement.edges_of_rank(1).size(), 0);
}

double most_work(const Placement& placement, const std::vector<ClientLoad>& loads) {
  double most = 0;
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    double work = 0;
    for (const std::int64_t client : placement.clients_of_rank(rank)) {
      work += loads[static_cast<std::size_t>(client)].work;
    }
    most = std::max(most, work);
  }
  return most;
}

TEST(Placement, HomesAreGivenByLoad) {
  std::vector<ClientLoad> loads;
  for (std::int64_t client = 0; client < 40; ++client) {
    loads.push_back({.work = 1000.0 / static_cast<double>(1 + client), .samples = 10});
  }
  for (const std::int64_t edges : {0, 2, 3}) {
    const std::vector<std::int32_t> edge_of_client = edges_of_clients(40, edges, {});
    const Placement by_number(edge_of_client, edges, 6);
    const Placement by_load(edge_of_client, edges, 6, loads);
    if (edges > 0) expect_consistent(by_load);
    EXPECT_LT(most_work(by_load, loads), 0.8 * most_work(by_number, loads));
    for (std::int64_t client = 0; client < 40; ++client) {
      EXPECT_TRUE(
          std::ranges::binary_search(by_load.clients_of_rank(by_load.home_of(client)), client));
    }
  }
  for (ClientLoad& load : loads) load.work = 7;
  const Placement equal(edges_of_clients(40, 0, {}), 0, 6, loads);
  for (int rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(equal.clients_of_rank(rank),
              Placement(edges_of_clients(40, 0, {}), 0, 6).clients_of_rank(rank))
        << "neighbours stay together where loads are equal";
  }
}

TEST(Placement, NoRankHoldsMuchMoreThanOthers) {
  // Ten with all the work, of ten samples each; many that hold the samples and hardly work.
  std::vector<ClientLoad> loads(1000, {.work = 0.001, .samples = 100});
  for (std::size_t client = 0; client < 10; ++client) {
    loads[100 * client] = {.work = static_cast<double>(1 << client), .samples = 10};
  }
  const Placement placement(edges_of_clients(1000, 0, {}), 0, 4, loads);
  EXPECT_LT(most_work(placement, loads), 513) << "the largest has a rank almost for itself";
  for (int rank = 0; rank < 4; ++rank) {
    std::int64_t samples = 0;
    for (const std::int64_t client : placement.clients_of_rank(rank)) {
      samples += loads[static_cast<std::size_t>(client)].samples;
    }
    EXPECT_LE(samples, 1.25 * 99100 / 4 + 100);
    EXPECT_LE(placement.clients_of_rank(rank).size(), 313U);
  }
}

/// Clients as many as edges, so that the sums below are known.
Topology topology_of(Communicator& world, std::int64_t edges) {
  const std::int64_t clients = std::max<std::int64_t>(edges, 1);
  return {world, Placement(edges_of_clients(clients, edges, {}), edges, world.size())};
}

TEST(Topology, SumsAmongTheRanksNamed) {
  const auto world = world_communicator(60);
  for (const std::int64_t edges : {0, 1, 2, 4, 7}) {
    Topology topology = topology_of(*world, edges);
    const Placement& placement = topology.placement();
    Tensor all = at::full({3}, world->rank() + 1, at::kLong);
    topology.sum_(Among::All, all);
    EXPECT_EQ(all[2].item<std::int64_t>(), world->size() * (world->size() + 1) / 2);
    Tensor most = at::full({3}, world->rank() + 1, at::kLong);
    topology.max_(Among::All, most);
    EXPECT_EQ(most[0].item<std::int64_t>(), world->size());
    if (edges == 0) continue;

    const Range ranks = placement.ranks_of_edge(topology.edges().first);
    Tensor inside = at::full({3}, world->rank() + 1, at::kLong);
    topology.sum_(Among::Edge, inside);
    EXPECT_EQ(inside[1].item<std::int64_t>(),
              (ranks.last * (ranks.last + 1) - ranks.first * (ranks.first + 1)) / 2);

    Tensor leading = at::full({3}, 1, at::kLong);
    topology.sum_(Among::EdgeLeaders, leading);
    const std::int64_t leaders = std::min<std::int64_t>(edges, world->size());
    EXPECT_EQ(leading[0].item<std::int64_t>(), topology.leads() ? leaders : 1);
    topology.from_leader_(leading);
    EXPECT_EQ(leading[0].item<std::int64_t>(), leaders);
  }
}

TEST(Topology, AnEdgesSumMovesNothingBetweenEdges) {
  const auto world = world_communicator(60);
  Topology topology = topology_of(*world, world->size());  // an edge per rank
  const Traffic before = world->traffic();
  Tensor values = at::full({1000}, 1, at::kDouble);
  topology.sum_(Among::Edge, values);
  EXPECT_EQ(world->traffic().bytes, before.bytes);
  EXPECT_EQ(topology.leader_traffic().bytes, 0);
  EXPECT_EQ(topology.edge_traffic().bytes, 8000) << "handed to a communicator of this rank alone";
}

}  // namespace
}  // namespace fedhpc
