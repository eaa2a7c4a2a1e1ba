#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/core/options.hpp"
#include "fedhpc/core/range.hpp"

namespace fedhpc {

/// Where a participant of a round is trained.
enum class Training {
  Home,      ///< on the rank that keeps its samples and its rows
  Balanced,  ///< on the rank that evens out the ranks' work
  Auto       ///< Balanced where that is worth the moves, Home where clients cannot move
};

/// The `topology.*` keys.
struct TopologyOptions {
  std::int64_t edges = 0;
  double participation = 1;
  double edge_participation = 1;
  Training placement = Training::Auto;

  void declare(OptionSet& options);
};

/// Returns part `i` of `parts` contiguous parts of n things; sizes differ by at most one.
Range part_of(std::int64_t n, std::int64_t i, std::int64_t parts);

/// Returns the edge of every client: floor(c E / N) unless the partition says otherwise; -1 without
/// edges. Throws ConfigError for more edges than clients, or a partition that names an edge that
/// does not exist.
std::vector<std::int32_t> edges_of_clients(std::int64_t num_clients, std::int64_t num_edges,
                                           const std::vector<std::int32_t>& from_partition);

/// What a client means to the rank that is its home.
struct ClientLoad {
  double work = 0;           ///< of a round on average, in any unit
  std::int64_t samples = 0;  ///< held in memory
};

/// Places clients and edges on ranks: every client has a home. With at least as many ranks as
/// edges, an edge is a contiguous block of ranks, which share its clients. With more edges than
/// ranks, a rank hosts several whole edges. Ranks that share clients get contiguous parts of them.
/// Where their loads are known and those parts' differ, clients go to the rank with the least so
/// far instead, those of the most work first; a rank that holds a quarter more samples or clients
/// than the average gets no more. Every rank knows all of it.
class Placement {
 public:
  /// `edge_of_client` [N] as given by edges_of_clients(); `loads` [N], or none.
  Placement(std::vector<std::int32_t> edge_of_client, std::int64_t num_edges, int num_ranks,
            const std::vector<ClientLoad>& loads = {});

  std::int64_t clients() const { return static_cast<std::int64_t>(edge_of_client_.size()); }
  std::int64_t edges() const { return num_edges_; }
  int ranks() const { return num_ranks_; }

  /// Returns the edge of a client; -1 without edges.
  std::int32_t edge_of(std::int64_t client) const { return edge_of_client_[client]; }
  const std::vector<std::int32_t>& edge_of_client() const { return edge_of_client_; }
  const std::vector<std::int64_t>& clients_of_edge(std::int64_t edge) const;  ///< ascending
  const std::vector<std::int64_t>& clients_of_rank(int rank) const;           ///< ascending
  int home_of(std::int64_t client) const { return home_of_client_[client]; }
  /// Returns the edges a rank takes part in: exactly one, possibly shared, unless it hosts several.
  Range edges_of_rank(int rank) const;
  Range ranks_of_edge(std::int64_t edge) const;

 private:
  /// Gives these clients a home among these ranks.
  void settle(const std::vector<std::int64_t>& clients, const Range& ranks,
              const std::vector<ClientLoad>& loads);

  std::vector<std::int32_t> edge_of_client_;                // [N]
  std::vector<std::vector<std::int64_t>> clients_of_edge_;  // [E]
  std::vector<std::int32_t> home_of_client_;                // [N]
  std::vector<std::vector<std::int64_t>> clients_of_rank_;  // [ranks]
  std::int64_t num_edges_;
  int num_ranks_;
};

/// The ranks that work together in a sum.
enum class Among {
  All,         ///< every rank: inside the edges first, then the edge leaders, and back
  Edge,        ///< the ranks of this rank's edge; a rank that hosts several edges is alone
  EdgeLeaders  ///< the first rank of every edge, and with them the cloud on rank 0
};

/// Arranges the real machine like the simulated network. With at least as many ranks as edges, an
/// edge is a sub-communicator. Edge leaders form another one; nothing passes between edges
/// otherwise. Collective to construct.
class Topology {
 public:
  Topology(Communicator& world, Placement placement);

  const Placement& placement() const { return placement_; }
  Communicator& world() { return world_; }
  /// The edges this rank hosts or shares.
  Range edges() const { return edges_; }
  bool leads() const { return leads_; }  ///< true on one rank of every edge

  /// Replaces values by their sum or maximum on all ranks named; ranks not named keep theirs.
  /// Collective among them.
  void sum_(Among ranks, Tensor& values);
  void max_(Among ranks, Tensor& values);
  /// Hands the values of every edge's leader to the ranks of its edge.
  void from_leader_(Tensor& values);

  /// The traffic of this rank inside its edge and among edge leaders; world().traffic() has the
  /// rest.
  Traffic edge_traffic() const { return edge_ ? edge_->traffic() : Traffic{}; }
  Traffic leader_traffic() const { return leaders_ ? leaders_->traffic() : Traffic{}; }

 private:
  using Collective = void (Communicator::*)(Tensor&);

  void reduce_(Among ranks, Tensor& values, Collective collective);

  Communicator& world_;
  Placement placement_;
  Range edges_;
  bool leads_ = false;
  std::unique_ptr<Communicator> edge_;     // null without edges
  std::unique_ptr<Communicator> leaders_;  // null without edges and on ranks that do not lead
};

}  // namespace fedhpc
