#pragma once

#include <cstdint>
#include <vector>

#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/core/options.hpp"
#include "fedhpc/rounds/ledger.hpp"

namespace fedhpc {

/// The keys of section network. All 0: time is not modelled. Of several numbers client or edge i has
/// number i mod their count.
struct NetworkOptions {
  std::vector<double> client_edge_mbps{0};  ///< megabits (1e6) per second; 0: no limit
  std::vector<double> edge_cloud_mbps{0};
  std::vector<double> client_cloud_mbps{0};
  double latency_ms = 0;                ///< of every payload on any link
  std::vector<double> step_seconds{0};  ///< of the gradient of a client's batch

  void declare(OptionSet& options);
};

/// Models the time of payloads and gradients on the simulated network. Every client and every edge
/// has a line of its own to where it sends.
class NetworkModel {
 public:
  explicit NetworkModel(NetworkOptions options = {});

  /// True if a key is above 0.
  bool on() const { return on_; }
  /// Returns latency + 8 bytes / bandwidth of the line of a client, or of an edge over EdgeCloud;
  /// the latency alone where the bandwidth has no limit.
  double payload_seconds(Link link, std::int64_t sender, std::int64_t bytes) const;
  double local_seconds(std::int64_t client, std::int64_t gradients) const;

 private:
  const std::vector<double>& mbps(Link link) const;

  NetworkOptions options_;
  bool on_ = false;
};

/// Measures the simulated duration of one round (simulated_seconds; docs/semantics.md, 6). Edge
/// rounds follow each other, each as long as its slowest participant. The slowest edge's exchange
/// with the cloud comes last. A round without edges has one edge round. Every rank tells of its own
/// clients. Does nothing, at no cost, while it is off.
class RoundClock {
 public:
  /// The seconds told so far.
  struct Times {
    std::vector<double> clients{};  ///< seconds so far in this edge round, [clients of this rank]
    std::vector<double> edges{};    ///< seconds so far in this round, [E]
    std::vector<double> slowest{};  ///< [edge rounds]
    bool edge_round_open = false;
  };

  /// Covers `num_clients` clients on this rank, named from 0, and all ranks' `num_edges` edges,
  /// named from 0.
  RoundClock(bool on, std::int64_t num_clients, std::int64_t num_edges = 0);

  /// Adds what a client has worked, sent or received for.
  void pass(std::int64_t client, double seconds);
  /// Adds an edge's download or upload of one payload over EdgeCloud. One rank tells the clock of
  /// all payloads of an edge in a round.
  void pass_at_edge(std::int64_t edge, double seconds);

  /// Covers so many clients from the next edge round on.
  void cover(std::int64_t num_clients);
  /// Ends an edge round, on every rank alike, also on those without participants.
  void finish_edge_round();

  /// Seconds of the slowest participant of this rank in each edge round finished, in order.
  const std::vector<double>& slowest() const { return times_.slowest; }

  const Times& times() const { return times_; }
  /// Goes on from the times of another clock of these clients and edges.
  void go_on_from(const Times& times);

  /// Returns the seconds of the round over all ranks. Collective: one maximum of as many numbers as
  /// there were edge rounds, and one more. NaN, without communication, while the clock is off.
  double seconds(Communicator& comm) const;

 private:
  bool on_;
  Times times_;
};

}  // namespace fedhpc
