#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "fedhpc/core/rng.hpp"
#include "fedhpc/rounds/topology.hpp"

namespace fedhpc {

/// How a method weighs its clients (algorithm.weighting).
enum class Weighting { Samples, Batches, Uniform };

/// Who takes part in a round, over all ranks.
struct Cohort {
  std::vector<std::int64_t> clients;  ///< ids, ascending
  std::vector<std::int64_t> edges;    ///< drawn edges, ascending; empty for a method without edges
};

/// Number of participants for participation f of n clients: max(1, floor(f n + 1/2)).
std::int64_t cohort_size(std::int64_t n, double participation);

/// The cohort of a method without edges: uniform without replacement over all clients, the first
/// of the permutation keyed by (seed, cohort, round).
Cohort draw_cohort(std::uint64_t seed, std::int64_t round, std::int64_t num_clients,
                   double participation);

/// The cohort of a method with edges: edges first (pass 1 of the draw), then in every drawn edge
/// the first of a permutation of its clients (client = number of the edge), so that a single edge
/// draws what a method without edges would.
Cohort draw_hierarchical_cohort(std::uint64_t seed, std::int64_t round, const Placement& placement,
                                const TopologyOptions& options);

/// The participants of an edge round: at every edge of `drawn` as many as `drawn` has there, each
/// next one with a probability in proportion to its samples among those that are left; fewer where
/// fewer have any. `key` names the edge round; client = number of the edge. Ascending ids.
std::vector<std::int64_t> draw_by_samples(
    DrawKey key, const Cohort& drawn, const Placement& placement,
    const std::function<double(std::int64_t client)>& samples);

/// The draws of edge round r have this pass + r.
constexpr std::uint64_t kFirstEdgeRoundPass = 2;

/// The size of every cohort of a run: all rounds draw as many.
std::int64_t hierarchical_cohort_limit(const Placement& placement, const TopologyOptions& options);

}  // namespace fedhpc
