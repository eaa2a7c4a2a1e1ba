#pragma once

#include <cstdint>
#include <vector>

#include "fedhpc/core/options.hpp"

namespace fedhpc {

/// The `topology.*` keys.
struct TopologyOptions {
  std::int64_t edges = 0;
  double participation = 1;

  void declare(OptionSet& options);
};

/// Clients [first, last) of one rank: contiguous, sizes differ by at most one.
struct ClientRange {
  std::int64_t first = 0;
  std::int64_t last = 0;

  std::int64_t size() const { return last - first; }
};

ClientRange clients_of_rank(std::int64_t num_clients, int rank, int num_ranks);

/// The edge of every client: floor(c E / N) unless the partition says otherwise; -1 without edges.
/// Throws ConfigError when there are more edges than clients, or the partition names an edge that
/// does not exist.
std::vector<std::int32_t> edges_of_clients(std::int64_t num_clients, std::int64_t num_edges,
                                           const std::vector<std::int32_t>& from_partition);

/// Number of participants for participation f of n clients: max(1, floor(f n + 1/2)).
std::int64_t cohort_size(std::int64_t num_clients, double participation);

/// The clients that take part in a round (uniform without replacement), ascending.
std::vector<std::int64_t> draw_cohort(std::uint64_t seed, std::int64_t round,
                                      std::int64_t num_clients, double participation);

}  // namespace fedhpc
