#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "fedhpc/core/rng.hpp"
#include "fedhpc/rounds/topology.hpp"
#include "fedhpc/training/stragglers.hpp"

namespace fedhpc {

/// The weight of a client is its training samples, its batches, or 1 (algorithm.weighting).
enum class Weighting { Samples, Batches, Uniform };

/// The participants of a round, of all ranks.
struct Cohort {
  std::vector<std::int64_t> clients;  ///< ids, ascending
  std::vector<std::int64_t> edges;    ///< drawn edges, ascending; empty for a method without edges
  std::vector<std::int64_t> away{};   ///< late clients that were left out, ascending
  bool stands_in = false;             ///< nobody with samples was drawn: one stands in, counts as 0
};

/// Returns the number of participants of n clients at participation f: max(1, floor(f n + 1/2)).
std::int64_t cohort_size(std::int64_t n, double participation);

/// Draws the cohort of a method without edges: uniform without replacement over all clients, the
/// first of the permutation keyed by (seed, cohort, round).
Cohort draw_cohort(std::uint64_t seed, std::int64_t round, std::int64_t num_clients,
                   double participation);

/// Draws each client by itself with probability m / n, m = cohort_size(n, f): the sample that
/// privacy.noise is accounted for. Client k takes part where a uniform of its own is below.
Cohort draw_each(std::uint64_t seed, std::int64_t round, std::int64_t num_clients,
                 double participation);

/// Returns the most that draw_each() draws: of n at rate m / n more come with a probability below
/// 1e-13, and are left out.
std::int64_t draw_each_limit(std::int64_t num_clients, double participation);

/// Adds to a cohort of draw_each() of whose clients none `has_samples` one that has: that of the least
/// uniform. It stands in, so that such a round has its noise. Leaves all others as they are.
Cohort with_stand_in(Cohort drawn, std::uint64_t seed, std::int64_t round, std::int64_t num_clients,
                     const std::function<bool(std::int64_t client)>& has_samples);

/// Draws the cohort of a method with edges: edges first (pass 1 of the draw), then the clients of
/// every drawn edge. These are the first of a permutation of the edge's clients (client = number of
/// the edge). A single edge thus draws what a method without edges would.
Cohort draw_hierarchical_cohort(std::uint64_t seed, std::int64_t round, const Placement& placement,
                                const TopologyOptions& options);

/// Leaves out of a round's cohort those who stay away. At least one participant is left, of a cohort
/// with edges at every edge where clients were drawn.
Cohort without_absent(Cohort drawn, std::int64_t round, const Stragglers& stragglers,
                      const Placement& placement);

/// Draws the participants of an edge round, as many at every edge as `drawn` has there, those away
/// among them; fewer where fewer have samples. Each next one is drawn in proportion to its samples among those left. `key`
/// names the edge round; client = number of the edge. Ascending ids.
std::vector<std::int64_t> draw_by_samples(
    DrawKey key, const Cohort& drawn, const Placement& placement,
    const std::function<double(std::int64_t client)>& samples);

/// Edge round r draws with this pass + r.
constexpr std::uint64_t kFirstEdgeRoundPass = 2;

/// Returns the size of every cohort of a run: all rounds draw as many.
std::int64_t hierarchical_cohort_limit(const Placement& placement, const TopologyOptions& options);

}  // namespace fedhpc
