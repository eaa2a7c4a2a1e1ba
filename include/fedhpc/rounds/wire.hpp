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

/// Rows as they arrive from a codec.
struct Received {
  Rows rows;                        ///< equal to the rows sent where the codec loses nothing
  std::vector<std::int64_t> bytes;  ///< of each row on the wire, [C]
};

/// The simulated network of one round, as this rank's clients and edges use it. It encodes each
/// payload, books it in the ledger and tells the clock. It knows no round.
class Wire {
 public:
  /// The link that clients' payloads take now.
  Link client_link = Link::ClientCloud;

  /// `shard` holds this rank's `num_clients` clients and guests, `num_edges` counts those of all
  /// ranks. `buffers` do not travel; null for none. All of them outlive the wire.
  Wire(Ledger& ledger, const NetworkModel& network, const Shard& shard, std::int64_t num_clients,
       std::int64_t num_edges, OwnBuffers* buffers);

  /// Returns what each client receives of its row of `rows` [C, n]. Books one payload per client:
  /// the row and `beside` more bytes.
  Rows to_clients(const Rows& rows, std::span<const std::int64_t> clients, const Codec& codec,
                  std::int64_t beside = 0);
  /// Returns what arrives of each client's row. Books one payload per client.
  Rows from_clients(const Rows& rows, std::span<const std::int64_t> clients, const Codec& codec);
  /// Books one payload of `bytes` for each of these clients.
  void book(Direction direction, std::int64_t bytes, std::span<const std::int64_t> clients);

  /// Returns what arrives of rows between edges and cloud, which are booked edge by edge.
  Received encode(const Rows& rows, const Codec& codec) const;
  void book_edge(Direction direction, std::int64_t edge, std::int64_t bytes);

  /// Tells the clock how many gradients each of these clients has taken, [C]: one a batch and time.
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
