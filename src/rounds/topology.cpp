#include "fedhpc/rounds/topology.hpp"

#include <algorithm>
#include <cmath>

#include "fedhpc/core/error.hpp"
#include "fedhpc/core/rng.hpp"

namespace fedhpc {

void TopologyOptions::declare(OptionSet& options) {
  options.add(
      "topology.edges", edges, at_least<std::int64_t>(0),
      "edge servers; 0: none. A method without edge models only groups its clients by them");
  options.add("topology.participation", participation, above_up_to(0.0, 1.0),
              "fraction of the clients drawn into every round");
}

ClientRange clients_of_rank(std::int64_t num_clients, int rank, int num_ranks) {
  return {num_clients * rank / num_ranks, num_clients * (rank + 1) / num_ranks};
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

std::int64_t cohort_size(std::int64_t num_clients, double participation) {
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::floor(
                                       participation * static_cast<double>(num_clients) + 0.5)));
}

std::vector<std::int64_t> draw_cohort(std::uint64_t seed, std::int64_t round,
                                      std::int64_t num_clients, double participation) {
  const DrawKey key{
      .seed = seed, .purpose = Purpose::Cohort, .round = static_cast<std::uint64_t>(round)};
  std::vector<std::int64_t> cohort =
      permutation_prefix(key, num_clients, cohort_size(num_clients, participation));
  std::sort(cohort.begin(), cohort.end());
  return cohort;
}

}  // namespace fedhpc
