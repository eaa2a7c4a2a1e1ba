#include "fedhpc/rounds/topology.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

void TopologyOptions::declare(OptionSet& options) {
  options.add("topology.edges", edges, count_from(0),
              "edge servers of a method with edge models; 0: none");
  options.add("topology.participation", participation, above_up_to(0.0, 1.0),
              "fraction of the clients drawn into every round (with edge models: of each drawn "
              "edge's clients; with privacy.noise each client by itself)");
  options.add("topology.edge_participation", edge_participation, above_up_to(0.0, 1.0),
              "fraction of the edges drawn into every round by a method with edge models");
  options
      .add(
          "topology.placement", placement,
          Names<Training>{
              {"auto", Training::Auto}, {"home", Training::Home}, {"balanced", Training::Balanced}},
          "on which rank a participant is trained: the one that keeps its samples and its state "
          "(home), or the one that evens out the ranks' work of the round (balanced); auto: the "
          "latter where it is worth what has to move, on a CPU and for a method whose clients can")
      .acts(where("run.device", {"cpu", "auto"}));
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

namespace {

/// The part, of so many, of each of these clients: the one of the least work so far.
std::vector<std::int32_t> homes_by_load(const std::vector<std::int64_t>& clients,
                                        std::int64_t parts, const std::vector<ClientLoad>& loads) {
  std::vector<std::size_t> order(clients.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto load = [&](std::size_t place) -> const ClientLoad& { return loads[clients[place]]; };
  std::ranges::stable_sort(order, std::greater<>(), [&](auto place) { return load(place).work; });
  std::int64_t samples = 0;
  for (std::size_t place = 0; place < clients.size(); ++place) samples += load(place).samples;
  constexpr double kRoom = 1.25;
  const auto limit = [&](std::int64_t all) {
    return kRoom * static_cast<double>(all) / static_cast<double>(parts);
  };
  struct Part {
    double work = 0;
    std::int32_t number = 0;
    std::int64_t samples = 0;
    std::int64_t clients = 0;
  };
  const auto later = [](const Part& a, const Part& b) {
    return std::tie(a.work, a.number) > std::tie(b.work, b.number);
  };
  std::priority_queue<Part, std::vector<Part>, decltype(later)> open(later);
  for (std::int32_t part = 0; part < parts; ++part) open.push({.number = part});
  std::vector<std::int32_t> homes(clients.size());
  for (const std::size_t place : order) {
    Part part = open.top();
    open.pop();
    homes[place] = part.number;
    part.work += load(place).work;
    part.samples += load(place).samples;
    ++part.clients;
    const bool full =
        static_cast<double>(part.samples) >= limit(samples) ||
        static_cast<double>(part.clients) >= limit(static_cast<std::int64_t>(clients.size()));
    if (!full || open.empty()) open.push(part);
  }
  return homes;
}

}  // namespace

Placement::Placement(std::vector<std::int32_t> edge_of_client, std::int64_t num_edges,
                     int num_ranks, const std::vector<ClientLoad>& loads)
    : edge_of_client_(std::move(edge_of_client)),
      clients_of_edge_(static_cast<std::size_t>(num_edges)),
      home_of_client_(edge_of_client_.size()),
      clients_of_rank_(static_cast<std::size_t>(num_ranks)),
      num_edges_(num_edges),
      num_ranks_(num_ranks) {
  require(loads.empty() || loads.size() == edge_of_client_.size(), "every client has a load");
  if (num_edges == 0) {
    std::vector<std::int64_t> all(edge_of_client_.size());
    std::iota(all.begin(), all.end(), 0);
    settle(all, {0, num_ranks}, loads);
  } else {
    for (std::int64_t client = 0; client < clients(); ++client) {
      clients_of_edge_.at(static_cast<std::size_t>(edge_of(client))).push_back(client);
    }
    for (std::int64_t edge = 0; edge < num_edges; ++edge) {
      settle(clients_of_edge(edge), ranks_of_edge(edge), loads);
    }
  }
  for (std::int64_t client = 0; client < clients(); ++client) {
    clients_of_rank_[home_of(client)].push_back(client);
  }
}

const std::vector<std::int64_t>& Placement::clients_of_edge(std::int64_t edge) const {
  require(0 <= edge && edge < num_edges_, "an edge of the run");
  return clients_of_edge_[static_cast<std::size_t>(edge)];
}

const std::vector<std::int64_t>& Placement::clients_of_rank(int rank) const {
  return clients_of_rank_.at(static_cast<std::size_t>(rank));
}

void Placement::settle(const std::vector<std::int64_t>& clients, const Range& ranks,
                       const std::vector<ClientLoad>& loads) {
  const auto count = static_cast<std::int64_t>(clients.size());
  for (std::int64_t part = 0; part < ranks.size(); ++part) {
    const Range mine = part_of(count, part, ranks.size());
    for (std::int64_t place = mine.first; place < mine.last; ++place) {
      home_of_client_[clients[place]] = static_cast<std::int32_t>(ranks.first + part);
    }
  }
  if (loads.empty() || ranks.size() == 1) return;
  const std::vector<std::int32_t> by_load = homes_by_load(clients, ranks.size(), loads);
  const auto most = [&](const auto& part_of_place) {
    std::vector<double> work(static_cast<std::size_t>(ranks.size()), 0);
    for (std::int64_t place = 0; place < count; ++place) {
      work[part_of_place(place)] += loads[clients[place]].work;
    }
    return *std::ranges::max_element(work);
  };
  constexpr double kGain = 0.98;  // less is not worth that neighbours part
  if (most([&](auto place) { return by_load[place]; }) >
      kGain * most([&](auto place) { return home_of_client_[clients[place]] - ranks.first; })) {
    return;
  }
  for (std::int64_t place = 0; place < count; ++place) {
    home_of_client_[clients[place]] = static_cast<std::int32_t>(ranks.first) + by_load[place];
  }
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
  leaders_ = world.split(leads_ ? 0 : Communicator::kNoPart);
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
