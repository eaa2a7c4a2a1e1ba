#include "fedhpc/rounds/wire.hpp"

#include <array>
#include <utility>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

/// What a compressor works on: weights, and neither statistics nor norms, of which a few lost
/// numbers would spoil a whole model. They arrive as they are.
PayloadFit compressed_tensors(const Layout& layout) {
  ColumnRanges tensors;
  std::vector<std::int64_t> heights;
  for (const Field& field : layout.fields()) {
    if (!has(field.tags, Tag::Trainable) || has(field.tags, Tag::Norm) || field.size == 0) continue;
    tensors.push_back({field.offset, field.offset + field.size});
    heights.push_back(field.shape.size() < 2 ? 1 : field.shape.front());
  }
  return {.tensors = std::move(tensors), .heights = std::move(heights)};
}

/// What both ends of a link hold of these clients, for such rows.
Rows held_for(const Rows& rows, const StoredRows& stored, std::span<const std::int64_t> clients) {
  require(stored.layout()->size() == rows.layout->size(),
          "a payload travels by the channel that was opened for its columns");
  return stored.read(clients);
}

/// Wraps the edge of a rank's only payload.
std::array<std::int64_t, 1> end_of(std::int64_t edge) { return {kFirstEdgeEnd + edge}; }

}  // namespace

Wire::Wire(Ledger& ledger, const NetworkModel& network, const Shard& shard,
           std::int64_t num_clients, std::int64_t num_edges, OwnBuffers* buffers,
           const LinkDraws& draws, LinkMemory* memory)
    : ledger_(ledger),
      network_(network),
      shard_(shard),
      buffers_(buffers),
      draws_(draws),
      memory_(memory),
      clock_(network.on(), num_clients, num_edges) {}

std::vector<std::int64_t> Wire::send_(Tensor& values, const LayoutPtr& layout, const Codec& codec,
                                      std::span<const std::uint64_t> seeds) {
  if (!codec.lossless(values.scalar_type())) values = values.clone();
  if (codec.fitted({}) == nullptr) return codec.transmit_(values);
  PayloadFit fit = compressed_tensors(*layout);
  std::vector<std::int64_t> bytes;
  for (std::size_t c = 0; c < seeds.size(); ++c) {
    fit.seed = seeds[c];
    const Tensor row = values.narrow(0, static_cast<std::int64_t>(c), 1);
    bytes.push_back(codec.fitted(fit)->transmit_(row).front());
  }
  return bytes;
}

Received Wire::encode(const Rows& rows, const Codec& codec, Direction direction,
                      std::span<const std::int64_t> ends, std::int64_t channel) const {
  std::vector<std::uint64_t> seeds;
  for (const std::int64_t end : ends) seeds.push_back(draws_.of(direction, end, channel));
  return encode(rows, codec, seeds);
}

Received Wire::encode(const Rows& rows, const Codec& codec,
                      std::span<const std::uint64_t> seeds) const {
  const RowPart* part = buffers_ == nullptr ? nullptr : &buffers_->travelling(rows.layout);
  const bool whole = part == nullptr || part->is_whole();
  Tensor values = whole ? rows.values : part->of(rows).values;
  std::vector<std::int64_t> bytes =
      send_(values, whole ? rows.layout : part->layout(), codec, seeds);
  if (whole) return {{values, rows.layout}, std::move(bytes)};
  Rows arrived = rows.clone();
  part->put_(arrived, {values, part->layout()});
  return {std::move(arrived), std::move(bytes)};
}

Received Wire::with_feedback(const Rows& rows, Rows& kept, const Codec& codec,
                             std::span<const std::int64_t> ends) const {
  if (codec.feedback() == ErrorFeedback::Ef21) {
    Received arrival = encode(rows - kept, codec, Direction::Up, ends);
    arrival.rows += kept;  // g <- g + C(x - g)
    kept = arrival.rows;
    return arrival;
  }
  const Rows wanted = rows + kept;
  Received arrival = encode(wanted, codec, Direction::Up, ends);
  kept = wanted - arrival.rows;  // e <- e + x - C(e + x)
  return arrival;
}

Received Wire::as_changes(const Rows& models, Rows& known, const Codec& codec,
                          std::span<const std::int64_t> ends, std::int64_t channel) const {
  Received arrival = encode(models - known, codec, Direction::Down, ends, channel);
  arrival.rows += known;  // w <- w + C(x - w)
  known = arrival.rows;
  return arrival;
}

void Wire::book(Direction direction, std::int64_t bytes, std::span<const std::int64_t> clients) {
  for (const std::int64_t client : clients) {
    ledger_.book(client_link, direction, bytes);
    clock_.pass(shard_.position(client), network_.payload_seconds(client_link, client, bytes));
  }
}

Rows Wire::booked_at_clients(Received arrival, std::span<const std::int64_t> clients,
                             std::int64_t beside) {
  for (std::size_t c = 0; c < clients.size(); ++c) {
    book(Direction::Down, arrival.bytes[c] + beside, clients.subspan(c, 1));
  }
  if (buffers_ != nullptr) buffers_->put_(arrival.rows, clients);
  return arrival.rows;
}

Rows Wire::to_clients(const Rows& rows, std::span<const std::int64_t> clients, const Codec& codec,
                      std::int64_t beside) {
  return booked_at_clients(encode(rows, codec, Direction::Down, clients), clients, beside);
}

Received Wire::for_everybody(const Rows& row, const Codec& codec) const {
  return encode(row, codec, Direction::Down, std::array{kEverybody});
}

Rows Wire::to_clients(const Received& message, std::span<const std::int64_t> clients) {
  return booked_at_clients({message.rows.replicate(std::ssize(clients)),
                            std::vector(clients.size(), message.bytes.front())},
                           clients, 0);
}

Rows Wire::compressed(const Rows& rows, std::span<const std::int64_t> clients, const Codec& codec,
                      std::int64_t step) const {
  std::vector<std::uint64_t> seeds;
  for (const std::int64_t client : clients) seeds.push_back(draws_.of_step(step, client));
  return encode(rows, codec, seeds).rows;
}

Rows Wire::models_to_clients(const Rows& models, std::span<const std::int64_t> clients,
                             std::int64_t channel, std::int64_t beside) {
  const Codec* codec = memory_ == nullptr ? nullptr : memory_->downlink();
  if (codec == nullptr) codec = &dense_codec();
  if (codec->lossless(models.values.scalar_type())) {
    return to_clients(models, clients, *codec, beside);
  }
  StoredRows& at_clients = memory_->downloads(channel);
  Rows known = held_for(models, at_clients, clients);
  const Received arrival = as_changes(models, known, *codec, clients, channel);
  at_clients.write(clients, known);
  return booked_at_clients(arrival, clients, beside);
}

void Wire::claim_channel(std::span<const std::int64_t> clients, std::int64_t channel) {
  for (const std::int64_t client : clients) {
    const auto [place, is_first] =
        sent_.try_emplace(std::pair(client, channel), *draws_.edge_round);
    if (!is_first && std::exchange(place->second, *draws_.edge_round) == *draws_.edge_round) {
      throw ConfigError(
          "a client sends two payloads of a round by one codec, whose error feedback is that of "
          "one; "
          "the method has to open a codec for each, on a channel of its own");
    }
  }
}

Rows Wire::from_clients(const Rows& rows, std::span<const std::int64_t> clients,
                        const Codec& codec) {
  Received arrival;
  if (codec.feedback() == ErrorFeedback::None || rows.layout->size() == 0) {
    arrival = encode(rows, codec, Direction::Up, clients);
  } else {
    require(memory_ != nullptr, "error feedback has a memory");
    claim_channel(clients, codec.channel());
    StoredRows& at_clients = memory_->uploads(codec.channel());
    Rows kept = held_for(rows, at_clients, clients);
    arrival = with_feedback(rows, kept, codec, clients);
    at_clients.write(clients, kept);
  }
  for (std::size_t c = 0; c < clients.size(); ++c) {
    book(Direction::Up, arrival.bytes[c], clients.subspan(c, 1));
  }
  return arrival.rows;
}

Received Wire::from_edge(const Rows& row, std::int64_t edge, const Codec& codec, bool counts) {
  const std::array<std::int64_t, 1> ends = end_of(edge);
  if (codec.feedback() == ErrorFeedback::None) return encode(row, codec, Direction::Up, ends);
  const Rows place = memory_->edge_uploads().of(edge);
  Rows kept = place.clone();
  Received arrival = with_feedback(row, kept, codec, ends);
  if (counts) place.values.copy_(kept.values);
  return arrival;
}

Received Wire::to_edge(const Rows& model, std::int64_t edge, const Codec* codec) {
  const std::array<std::int64_t, 1> ends = end_of(edge);
  if (codec != nullptr) return encode(model, *codec, Direction::Down, ends);
  codec = memory_ == nullptr ? nullptr : memory_->downlink();
  if (codec == nullptr) return encode(model, dense_codec(), Direction::Down, ends);
  if (codec->lossless(model.values.scalar_type()))
    return encode(model, *codec, Direction::Down, ends);
  const Rows place = memory_->edge_downloads().of(edge);
  Rows known = place.clone();
  Received arrival = as_changes(model, known, *codec, ends, /*channel=*/0);
  place.values.copy_(known.values);
  return arrival;
}

void Wire::book_edge(Direction direction, std::int64_t edge, std::int64_t bytes) {
  ledger_.book(Link::EdgeCloud, direction, bytes);
  clock_.pass_at_edge(edge, network_.payload_seconds(Link::EdgeCloud, edge, bytes));
}

void Wire::take_gradients(std::span<const std::int64_t> clients,
                          std::span<const std::int64_t> counts) {
  for (std::size_t c = 0; c < clients.size(); ++c) {
    clock_.pass(shard_.position(clients[c]), network_.local_seconds(clients[c], counts[c]));
  }
}

}  // namespace fedhpc
