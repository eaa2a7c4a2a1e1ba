#include "fedhpc/rounds/topology.hpp"

#include <algorithm>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

void TopologyOptions::declare(OptionSet& options) {
  options.add("topology.edges", edges, count_from(0),
              "edge servers of a method with edge models; 0: none");
  options.add("topology.participation", participation, above_up_to(0.0, 1.0),
              "fraction of the clients drawn into every round (with edge models: of each drawn "
              "edge's clients)");
  options.add("topology.edge_participation", edge_participation, above_up_to(0.0, 1.0),
              "fraction of the edges drawn into every round by a method with edge models");
}

Range part_of(std::int64_t n, std::int64_t i, std::int64_t parts) {
  return {n * i / parts, n * (i + 1) / parts};
}

std::vector<std::int32_t> edges_of_clients(std::int64_t num_clients, std::int64_t num_edges,
                                           const std::vector<std::int32_t>& from_partition) {
  if (num_edges > num_clients) {
    throw ConfigError(concat("topology.edges = ", num_edges, " is more than the ", num_clients,
                             " clients; allowed: at most one edge per client"));
  }
  std::vector<std::int32_t> edges(static_cast<std::size_t>(num_clients), -1);
  if (num_edges == 0) return edges;
  if (!from_partition.empty()) {
    for (const std::int32_t edge : from_partition) {
      if (edge < 0 || edge >= num_edges) {
        throw ConfigError(concat("topology.edges = ", num_edges,
                                 ", but the partition puts a client on edge ", edge,
                                 "; allowed: 0 to ", num_edges - 1));
      }
    }
    return from_partition;
  }
  for (std::int64_t client = 0; client < num_clients; ++client) {
    edges[static_cast<std::size_t>(client)] =
        static_cast<std::int32_t>(client * num_edges / num_clients);
  }
  return edges;
}

Placement::Placement(std::vector<std::int32_t> edge_of_client, std::int64_t num_edges,
                     int num_ranks)
    : edge_of_client_(std::move(edge_of_client)),
      clients_of_edge_(static_cast<std::size_t>(num_edges)),
      num_edges_(num_edges),
      num_ranks_(num_ranks) {
  if (num_edges == 0) return;
  for (std::int64_t client = 0; client < clients(); ++client) {
    clients_of_edge_.at(static_cast<std::size_t>(edge_of(client))).push_back(client);
  }
}

const std::vector<std::int64_t>& Placement::clients_of_edge(std::int64_t edge) const {
  require(0 <= edge && edge < num_edges_, "an edge of the run");
  return clients_of_edge_[static_cast<std::size_t>(edge)];
}

std::vector<std::int64_t> Placement::clients_of_rank(int rank) const {
  std::vector<std::int64_t> clients;
  if (num_edges_ == 0) {
    const Range range = part_of(this->clients(), rank, num_ranks_);
    for (std::int64_t client = range.first; client < range.last; ++client) {
      clients.push_back(client);
    }
    return clients;
  }
  const Range edges = edges_of_rank(rank);
  if (edges.size() > 1) {
    for (std::int64_t edge = edges.first; edge < edges.last; ++edge) {
      const std::vector<std::int64_t>& members = clients_of_edge(edge);
      clients.insert(clients.end(), members.begin(), members.end());
    }
    std::sort(clients.begin(), clients.end());
    return clients;
  }
  const std::vector<std::int64_t>& shared = clients_of_edge(edges.first);
  const Range ranks = ranks_of_edge(edges.first);
  const Range mine =
      part_of(static_cast<std::int64_t>(shared.size()), rank - ranks.first, ranks.size());
  return {shared.begin() + mine.first, shared.begin() + mine.last};
}

Range Placement::edges_of_rank(int rank) const {
  if (num_edges_ == 0) return {};
  if (num_edges_ >= num_ranks_) return part_of(num_edges_, rank, num_ranks_);
  std::int64_t edge = 0;
  while (!ranks_of_edge(edge).holds(rank)) ++edge;
  return {edge, edge + 1};
}

Range Placement::ranks_of_edge(std::int64_t edge) const {
  if (num_edges_ <= num_ranks_) return part_of(num_ranks_, edge, num_edges_);
  int rank = 0;
  while (!edges_of_rank(rank).holds(edge)) ++rank;
  return {rank, rank + 1};
}

Topology::Topology(Communicator& world, Placement placement)
    : world_(world), placement_(std::move(placement)) {
  require(placement_.ranks() == world.size(), "clients are placed on the ranks there are");
  if (placement_.edges() == 0) return;
  edges_ = placement_.edges_of_rank(world.rank());
  const std::int64_t first_rank = placement_.ranks_of_edge(edges_.first).first;
  leads_ = world.rank() == first_rank;
  edge_ = world.split(static_cast<int>(first_rank));
  std::unique_ptr<Communicator> alike = world.split(leads_ ? 1 : 0);
  if (leads_) leaders_ = std::move(alike);
}

void Topology::reduce_(Among ranks, Tensor& values, Collective collective) {
  if (placement_.edges() == 0) {
    require(ranks == Among::All, "only a run with edges has sums inside them");
    (world_.*collective)(values);
    return;
  }
  if (ranks != Among::EdgeLeaders) ((*edge_).*collective)(values);
  if (ranks != Among::Edge && leads_) ((*leaders_).*collective)(values);
  if (ranks == Among::All) from_leader_(values);
}

void Topology::sum_(Among ranks, Tensor& values) { reduce_(ranks, values, &Communicator::sum_); }

void Topology::max_(Among ranks, Tensor& values) { reduce_(ranks, values, &Communicator::max_); }

void Topology::from_leader_(Tensor& values) { edge_->broadcast_(values, 0); }

}  // namespace fedhpc
