#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "fedhpc/codecs/codec.hpp"
#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/data/shard.hpp"
#include "fedhpc/models/layout.hpp"
#include "fedhpc/rounds/ledger.hpp"
#include "fedhpc/rounds/link_memory.hpp"
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
  /// ranks. `buffers` do not travel; null for none. `draws` name the payloads of the round, `memory`
  /// is what both ends of a link know of earlier ones. All of them outlive the wire.
  Wire(Ledger& ledger, const NetworkModel& network, const Shard& shard, std::int64_t num_clients,
       std::int64_t num_edges, OwnBuffers* buffers, const LinkDraws& draws, LinkMemory* memory);

  /// Returns what each client receives of its row of `rows` [C, n]. Books one payload per client:
  /// the row and `beside` more bytes.
  Rows to_clients(const Rows& rows, std::span<const std::int64_t> clients, const Codec& codec,
                  std::int64_t beside = 0);
  /// Encodes a row [1, n] once, for all clients. Books nothing.
  Received for_everybody(const Rows& row, const Codec& codec) const;
  /// Returns such a row as each client receives it. Books one payload per client.
  Rows to_clients(const Received& message, std::span<const std::int64_t> clients);
  /// Returns what `codec` leaves of each client's row in its local step `step`. Nothing travels.
  Rows compressed(const Rows& rows, std::span<const std::int64_t> clients, const Codec& codec,
                  std::int64_t step) const;
  /// Returns what arrives of each client's row. Books one payload per client. Throws ConfigError
  /// for a second one on a channel in an edge round where the codec has error feedback.
  Rows from_clients(const Rows& rows, std::span<const std::int64_t> clients, const Codec& codec);
  /// The same of models that a server sends in its usual way, algorithm.downlink_codec; `channel`
  /// as of a codec. Books the model and `beside` more bytes.
  Rows models_to_clients(const Rows& models, std::span<const std::int64_t> clients,
                         std::int64_t channel, std::int64_t beside = 0);
  /// Books one payload of `bytes` for each of these clients.
  void book(Direction direction, std::int64_t bytes, std::span<const std::int64_t> clients);

  /// Returns what arrives of a row [1, P] from an edge at the cloud. Books nothing. Error feedback
  /// forgets nothing of a row that does not count in the cloud's mean.
  Received from_edge(const Rows& row, std::int64_t edge, const Codec& codec, bool counts);
  /// The same of a model [1, P] from the cloud at an edge; null: as algorithm.downlink_codec says.
  Received to_edge(const Rows& model, std::int64_t edge, const Codec* codec);
  void book_edge(Direction direction, std::int64_t edge, std::int64_t bytes);

  /// Tells the clock how many gradients each of these clients has taken, [C]: one a batch and time.
  void take_gradients(std::span<const std::int64_t> clients, std::span<const std::int64_t> counts);

  Ledger& ledger() const { return ledger_; }
  RoundClock& clock() { return clock_; }
  const RoundClock& clock() const { return clock_; }

 private:
  /// What arrives of rows whose senders or receivers below the server are `ends`. Books nothing.
  Received encode(const Rows& rows, const Codec& codec, Direction direction,
                  std::span<const std::int64_t> ends) const {
    return encode(rows, codec, direction, ends, codec.channel());
  }
  Received encode(const Rows& rows, const Codec& codec, Direction direction,
                  std::span<const std::int64_t> ends, std::int64_t channel) const;
  /// The same with a seed of draws for each row.
  Received encode(const Rows& rows, const Codec& codec, std::span<const std::uint64_t> seeds) const;
  static std::vector<std::int64_t> send_(Tensor& values, const LayoutPtr& layout,
                                         const Codec& codec, std::span<const std::uint64_t> seeds);
  /// What arrives of models, as changes of what the receivers have in `known`, which it updates.
  Received as_changes(const Rows& models, Rows& known, const Codec& codec,
                      std::span<const std::int64_t> ends, std::int64_t channel) const;
  /// What the server reads of rows with this feedback; `kept` is what it leaves at the ends.
  Received with_feedback(const Rows& rows, Rows& kept, const Codec& codec,
                         std::span<const std::int64_t> ends) const;
  /// Notes that these clients send on a channel now.
  void claim_channel(std::span<const std::int64_t> clients, std::int64_t channel);
  Rows booked_at_clients(Received arrival, std::span<const std::int64_t> clients,
                         std::int64_t beside);

  Ledger& ledger_;
  const NetworkModel& network_;
  const Shard& shard_;
  OwnBuffers* buffers_;
  LinkDraws draws_;
  LinkMemory* memory_;
  RoundClock clock_;
  /// The edge round in which a client has last sent something on a channel with error feedback.
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> sent_;
};

}  // namespace fedhpc
