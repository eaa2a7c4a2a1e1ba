#include <algorithm>
#include <functional>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "fedhpc/rounds/client_store.hpp"

namespace fedhpc {

namespace {

/// Pieces never hold more: large allocations fail where smaller ones still fit.
constexpr std::int64_t kPieceBytes = std::int64_t{16} << 20;
/// A new piece has one slot for so many that exist: what is spare stays below that part.
constexpr std::int64_t kGrowth = 8;

}  // namespace

OwnClients::OwnClients(std::vector<std::int64_t> ids) : ids_(std::move(ids)) {
  require(std::adjacent_find(ids_.begin(), ids_.end(), std::greater_equal<>()) == ids_.end(),
          "a rank's clients are ascending and different");
}

std::size_t OwnClients::position(std::int64_t client) const {
  const auto found = std::lower_bound(ids_.begin(), ids_.end(), client);
  require(found != ids_.end() && *found == client, "the client belongs to this rank");
  return static_cast<std::size_t>(found - ids_.begin());
}

StoredRows::StoredRows(const OwnClients& clients, RowPlacement& placement, Rows initial)
    : clients_(clients),
      placement_(placement),
      initial_(std::move(initial)),
      row_bytes_(static_cast<std::int64_t>(initial_.values.nbytes())) {
  require(initial_.values.dim() == 2 && initial_.count() == 1, "one initial row for all clients");
  require(initial_.values.size(1) == initial_.layout->size(), "the initial row fits its layout");
  require(initial_.values.is_cpu() && row_bytes_ > 0, "rows in host memory that hold something");
  initial_.values = initial_.values.clone(at::MemoryFormat::Contiguous);
}

StoredRows::Place StoredRows::place_of(std::int64_t slot) const {
  const auto after = std::upper_bound(first_slots_.begin(), first_slots_.end(), slot);
  const auto piece = static_cast<std::size_t>(after - first_slots_.begin()) - 1;
  return {piece, (slot - first_slots_[piece]) * row_bytes_};
}

void StoredRows::grow() {
  const std::int64_t wanted =
      std::min({std::max<std::int64_t>(1, capacity_ / kGrowth), clients_.count() - capacity_,
                std::max<std::int64_t>(1, kPieceBytes / row_bytes_)});
  pieces_.push_back(placement_.place(wanted, row_bytes_));
  first_slots_.push_back(capacity_);
  capacity_ += pieces_.back().rows;
}

std::int64_t StoredRows::slot_for(std::int64_t client) {
  clients_.position(client);  // refuses those of other ranks
  const auto next = static_cast<std::int64_t>(slots_.size());
  const auto found = slots_.find(client);
  if (found != slots_.end()) return found->second;
  if (next == capacity_) grow();
  slots_.emplace(client, next);
  return next;
}

Rows StoredRows::read(std::span<const std::int64_t> clients) const {
  return read(clients, initial_);
}

Rows StoredRows::read(std::span<const std::int64_t> clients, const Rows& otherwise) const {
  require(otherwise.layout == layout() && otherwise.values.scalar_type() == type() &&
              (otherwise.count() == 1 ||
               otherwise.count() == static_cast<std::int64_t>(clients.size())),
          "what stands in for a row is like it");
  Rows rows{at::empty({static_cast<std::int64_t>(clients.size()), layout()->size()},
                      initial_.values.options()),
            layout()};
  const Tensor others = otherwise.values.contiguous();
  const std::int64_t stride = otherwise.count() == 1 ? 0 : row_bytes_;
  auto* to = static_cast<char*>(rows.values.data_ptr());
  const auto* from = static_cast<const char*>(others.const_data_ptr());
  for (const std::int64_t client : clients) {
    clients_.position(client);
    const auto found = slots_.find(client);
    if (found == slots_.end()) {
      std::copy_n(from, row_bytes_, to);
    } else {
      const Place place = place_of(found->second);
      pieces_[place.piece].block.copy_out(place.offset, to, row_bytes_);
    }
    to += row_bytes_;
    from += stride;
  }
  return rows;
}

Rows StoredRows::view(std::int64_t client) const {
  clients_.position(client);
  const auto found = slots_.find(client);
  if (found == slots_.end()) return initial_;
  const Place place = place_of(found->second);
  const void* data = pieces_[place.piece].block.readable(place.offset);
  if (data == nullptr) return read(std::span(&client, 1));
  // A tensor has no read-only memory; the caller keeps to it.
  return {at::from_blob(const_cast<void*>(data), {1, layout()->size()}, initial_.values.options()),
          layout()};
}

void StoredRows::write(std::span<const std::int64_t> clients, const Rows& rows) {
  require(rows.layout == layout() && rows.values.scalar_type() == type(),
          "rows keep their layout and type in the store");
  require(rows.values.is_cpu() && rows.count() == static_cast<std::int64_t>(clients.size()),
          "one row in host memory per client");
  const Tensor values = rows.values.contiguous();
  const auto* from = static_cast<const char*>(values.const_data_ptr());
  for (const std::int64_t client : clients) {
    const Place place = place_of(slot_for(client));
    pieces_[place.piece].block.copy_in(place.offset, from, row_bytes_);
    from += row_bytes_;
  }
}

bool StoredRows::written(std::int64_t client) const {
  clients_.position(client);
  return slots_.contains(client);
}

std::vector<std::int64_t> StoredRows::written_clients() const {
  std::vector<std::int64_t> clients;
  for (const auto& [client, slot] : slots_) clients.push_back(client);
  return clients;
}

void StoredRows::clear() {
  for (RowPlacement::Piece& piece : pieces_) placement_.release(piece);
  pieces_.clear();
  first_slots_.clear();
  slots_.clear();
  capacity_ = 0;
}

StoreBytes StoredRows::memory_bytes() const {
  StoreBytes bytes{.device = 0, .host = row_bytes_};
  for (const RowPlacement::Piece& piece : pieces_) {
    (piece.on_device ? bytes.device : bytes.host) += piece.block.bytes();
  }
  return bytes;
}

}  // namespace fedhpc
