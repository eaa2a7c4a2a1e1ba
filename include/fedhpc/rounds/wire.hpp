#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fedhpc/codecs/codec.hpp"
#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/data/shard.hpp"
#include "fedhpc/models/layout.hpp"
#include "fedhpc/rounds/ledger.hpp"
#include "fedhpc/rounds/network.hpp"
#include "fedhpc/rounds/own_buffers.hpp"

namespace fedhpc {

/// What arrives of rows sent through a codec.
struct Received {
  Rows rows;                        ///< [C, n]; what was sent where the codec loses nothing
  std::vector<std::int64_t> bytes;  ///< of each row on the wire, [C]
};

/// The simulated network in one round, as this rank's clients and edges use it: what goes over it
/// is encoded, booked in the ledger and told to the clock. Knows no round.
class Wire {
 public:
  /// Between whom clients' payloads travel now.
  Link client_link = Link::ClientCloud;

  /// `shard` holds this rank's clients, `num_edges` counts those of all ranks. `buffers`: what does
  /// not travel, null for none. All of them outlive the wire.
  Wire(Ledger& ledger, const NetworkModel& network, const Shard& shard, std::int64_t num_edges,
       OwnBuffers* buffers);

  /// What each client receives of its row of `rows` [C, n]. Books one payload per client, which has
  /// room for so many bytes `beside` the row.
  Rows to_clients(const Rows& rows, std::span<const std::int64_t> clients, const Codec& codec,
                  std::int64_t beside = 0);
  /// What arrives of each client's row. Books one payload per client.
  Rows from_clients(const Rows& rows, std::span<const std::int64_t> clients, const Codec& codec);
  /// Books one payload of `bytes` for each of these clients.
  void book(Direction direction, std::int64_t bytes, std::span<const std::int64_t> clients);

  /// What arrives of rows between edges and cloud, which are booked edge by edge.
  Received encode(const Rows& rows, const Codec& codec) const;
  void book_edge(Direction direction, std::int64_t edge, std::int64_t bytes);

  /// Gradients that each of these clients has taken, one of each batch and each time, [C].
  void take_gradients(std::span<const std::int64_t> clients, std::span<const std::int64_t> counts);

  OwnBuffers* buffers() const { return buffers_; }
  Ledger& ledger() const { return ledger_; }
  RoundClock& clock() { return clock_; }
  const RoundClock& clock() const { return clock_; }

 private:
  Ledger& ledger_;
  const Shard& shard_;
  OwnBuffers* buffers_;
  RoundClock clock_;
};

}  // namespace fedhpc
