#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>

#include "fedhpc/codecs/codec.hpp"
#include "fedhpc/core/rng.hpp"
#include "fedhpc/rounds/client_store.hpp"
#include "fedhpc/rounds/edge_rows.hpp"
#include "fedhpc/rounds/ledger.hpp"
#include "fedhpc/rounds/state_visitor.hpp"

namespace fedhpc {

/// Seeds of what codecs draw: the first word of (run.seed, Purpose::Codec, pass 2 of uploads and 3
/// of downloads, 8 more for each channel, epoch: the edge round, client, or 2^32 + edge, or 2^33 of
/// what all receive, round).
struct LinkDraws {
  std::uint64_t seed = 0;
  std::int64_t round = 0;
  const std::int64_t* edge_round = nullptr;

  std::uint64_t of(Direction direction, std::int64_t end, std::int64_t channel) const;
  /// Of what a client compresses for its local step `step`: pass 4, epoch: the step.
  std::uint64_t of_step(std::int64_t step, std::int64_t client) const;
};

/// The first `end` of an edge in LinkDraws.
constexpr std::int64_t kFirstEdgeEnd = std::int64_t{1} << 32;
/// That of all clients together.
constexpr std::int64_t kEverybody = std::int64_t{1} << 33;

/// What the two ends of each link know of its earlier payloads: a row per client in the store, one
/// per edge here. A client that does not take part keeps its row.
///
///   up, ef14   e   <- e + x - C(e + x); the server reads C(e + x)
///   up, ef21   g   <- g + C(x - g); the server reads g; of whole models g starts at the initial one
///   down       w_i <- w_i + C(x - w_i); client i reads w_i
///
/// x: what is sent. ef14: Seide et al., INTERSPEECH 2014; Stich, Cordonnier, Jaggi, NeurIPS 2018.
/// ef21: Richtarik, Sokolov, Fatkhullin, NeurIPS 2021. With the changes of a model for x, ef14 is
/// ef21 of the model: e = x - w. Downloads therefore have one rule.
class LinkMemory {
 public:
  /// One thing that travels in every round.
  struct Payload {
    Rows model;              ///< [1, P] that both ends know at the start
    bool models_up = false;  ///< uploads are such models, not changes of them
    ErrorFeedback feedback = ErrorFeedback::None;
    std::unique_ptr<Codec> downlink = {};  ///< null: dense
  };

  explicit LinkMemory(ClientStore& store) : store_(store) {}

  /// Opens what a payload's codecs need. `edges` of this rank, empty where they have no models, and
  /// where `channel`, the number of the payload in a round, is above 0. Throws ConfigError where the
  /// channel has a payload already: their draws would be the same.
  void open(Payload payload, Range edges, std::int64_t channel);

  const Codec* downlink() const { return downlink_.get(); }  ///< null: dense
  StoredRows& uploads(std::int64_t channel);
  StoredRows& downloads(std::int64_t channel);
  EdgeRows& edge_uploads() { return *edge_uploads_; }
  EdgeRows& edge_downloads() { return *edge_downloads_; }

  void visit_state(StateVisitor& state);

 private:
  ClientStore& store_;
  std::set<std::int64_t> channels_;
  std::unique_ptr<Codec> downlink_;
  std::optional<EdgeRows> edge_uploads_;    // e or g of each edge
  std::optional<EdgeRows> edge_downloads_;  // w of each edge
};

}  // namespace fedhpc
