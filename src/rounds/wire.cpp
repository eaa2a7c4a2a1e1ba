#include "fedhpc/rounds/wire.hpp"

namespace fedhpc {

namespace {

/// Sends `values` [C, n], which become what arrives; gives the bytes of each row.
std::vector<std::int64_t> send_(Tensor& values, const Codec& codec) {
  if (!codec.lossless(values.scalar_type())) values = values.clone();
  return codec.transmit_(values);
}

}  // namespace

Wire::Wire(Ledger& ledger, const NetworkModel& network, const Shard& shard,
           std::int64_t num_clients, std::int64_t num_edges, OwnBuffers* buffers)
    : ledger_(ledger), shard_(shard), buffers_(buffers), clock_(network, num_clients, num_edges) {}

Received Wire::encode(const Rows& rows, const Codec& codec) const {
  const RowPart* part = buffers_ == nullptr ? nullptr : &buffers_->travelling(rows.layout);
  const bool whole = part == nullptr || part->is_whole();
  Tensor values = whole ? rows.values : part->of(rows).values;
  std::vector<std::int64_t> bytes = send_(values, codec);
  if (whole) return {{values, rows.layout}, std::move(bytes)};
  Rows arrived = rows.clone();
  part->put_(arrived, {values, part->layout()});
  return {std::move(arrived), std::move(bytes)};
}

void Wire::book(Direction direction, std::int64_t bytes, std::span<const std::int64_t> clients) {
  for (const std::int64_t client : clients) {
    ledger_.book(client_link, direction, bytes);
    clock_.transfer(client_link, shard_.position(client), bytes);
  }
}

Rows Wire::to_clients(const Rows& rows, std::span<const std::int64_t> clients, const Codec& codec,
                      std::int64_t beside) {
  Received arrival = encode(rows, codec);
  for (std::size_t c = 0; c < clients.size(); ++c) {
    book(Direction::Down, arrival.bytes[c] + beside, clients.subspan(c, 1));
  }
  if (buffers_ != nullptr) buffers_->put_(arrival.rows, clients);
  return arrival.rows;
}

Rows Wire::from_clients(const Rows& rows, std::span<const std::int64_t> clients,
                        const Codec& codec) {
  Received arrival = encode(rows, codec);
  for (std::size_t c = 0; c < clients.size(); ++c) {
    book(Direction::Up, arrival.bytes[c], clients.subspan(c, 1));
  }
  return arrival.rows;
}

void Wire::book_edge(Direction direction, std::int64_t edge, std::int64_t bytes) {
  ledger_.book(Link::EdgeCloud, direction, bytes);
  clock_.edge_transfer(edge, bytes);
}

void Wire::take_gradients(std::span<const std::int64_t> clients,
                          std::span<const std::int64_t> counts) {
  for (std::size_t c = 0; c < clients.size(); ++c) {
    clock_.gradients(shard_.position(clients[c]), counts[c]);
  }
}

}  // namespace fedhpc
