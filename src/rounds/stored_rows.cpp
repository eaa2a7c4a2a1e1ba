#include <algorithm>
#include <functional>
#include <optional>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "fedhpc/core/device.hpp"
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
  if (found != ids_.end() && *found == client) {
    return static_cast<std::size_t>(found - ids_.begin());
  }
  const auto guest = std::lower_bound(guests_.begin(), guests_.end(), client);
  require(guest != guests_.end() && *guest == client, "the client belongs to this rank");
  return ids_.size() + static_cast<std::size_t>(guest - guests_.begin());
}

void OwnClients::set_guests(std::vector<std::int64_t> guests) {
  require(std::ranges::is_sorted(guests), "guests are ascending");
  guests_ = std::move(guests);
}

StoredRows::StoredRows(const OwnClients& clients, RowPlacement& placement, Rows initial)
    : clients_(clients),
      placement_(placement),
      initial_(std::move(initial)),
      row_bytes_(static_cast<std::int64_t>(initial_.values.nbytes())) {
  require(initial_.values.dim() == 2 && initial_.count() == 1, "one initial row for all clients");
  require(initial_.values.size(1) == initial_.layout->size(), "the initial row fits its layout");
  require(row_bytes_ > 0, "rows that hold something");
  initial_.values = initial_.values.clone(at::MemoryFormat::Contiguous);
}

StoredRows::Place StoredRows::place_of(std::int64_t slot) const {
  const auto after = std::upper_bound(first_slots_.begin(), first_slots_.end(), slot);
  const auto piece = static_cast<std::size_t>(after - first_slots_.begin()) - 1;
  return {piece, (slot - first_slots_[piece]) * row_bytes_};
}

void StoredRows::grow() {
  const std::int64_t wanted =
      std::min({std::max<std::int64_t>(1, capacity_ / kGrowth), clients_.with_guests() - capacity_,
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
  if (!free_slots_.empty()) {
    const std::int64_t slot = free_slots_.back();
    free_slots_.pop_back();
    slots_.emplace(client, slot);
    return slot;
  }
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
  if (on_device(rows.values)) {
    read_on_device(clients, others, rows.values);
    return rows;
  }
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

template <typename Work>
void StoredRows::each_stretch(std::span<const std::int64_t> clients, const Work& work) const {
  const auto count = static_cast<std::int64_t>(clients.size());
  for (std::int64_t first = 0; first < count;) {
    const auto slot_of = [&](std::int64_t c) {
      const std::int64_t client = clients[static_cast<std::size_t>(c)];
      clients_.position(client);
      const auto found = slots_.find(client);
      return found == slots_.end() ? -1 : found->second;
    };
    const std::int64_t slot = slot_of(first);
    const std::optional<Place> place = slot < 0 ? std::nullopt : std::optional(place_of(slot));
    std::int64_t next = first + 1;
    for (; next < count; ++next) {
      const std::int64_t wanted = slot < 0 ? slot : slot + next - first;
      if (slot_of(next) != wanted) break;
      if (place && place_of(wanted).piece != place->piece) break;
    }
    work(first, next - first, place ? &*place : nullptr);
    first = next;
  }
}

void StoredRows::read_on_device(std::span<const std::int64_t> clients, const Tensor& otherwise,
                                const Tensor& rows) const {
  each_stretch(clients, [&](std::int64_t first, std::int64_t count, const Place* place) {
    const Tensor stretch = rows.narrow(0, first, count);
    if (place != nullptr) {
      pieces_[place->piece].block.copy_rows_out(place->offset, stretch);
    } else {
      stretch.copy_(otherwise.size(0) == 1 ? otherwise : otherwise.narrow(0, first, count));
    }
  });
}

Rows StoredRows::view(std::int64_t client) const {
  clients_.position(client);
  const auto found = slots_.find(client);
  if (found == slots_.end()) return initial_;
  const Place place = place_of(found->second);
  if (on_device(initial_.values)) {
    const Tensor row = pieces_[place.piece].block.rows_in_place(place.offset, initial_.values);
    return row.defined() ? Rows{row, layout()} : read(std::span(&client, 1));
  }
  const void* data = pieces_[place.piece].block.readable(place.offset);
  if (data == nullptr) return read(std::span(&client, 1));
  // A tensor has no read-only memory; the caller keeps to it.
  return {at::from_blob(const_cast<void*>(data), {1, layout()->size()}, initial_.values.options()),
          layout()};
}

Rows StoredRows::view(std::span<const std::int64_t> clients) const {
  return clients.size() == 1 ? view(clients.front()) : read(clients);
}

void StoredRows::each_portion(
    std::span<const std::int64_t> places,
    const std::function<void(std::span<const std::int64_t>)>& work) const {
  const std::size_t together = on_device(initial_.values) ? places.size() : 1;
  for (std::size_t first = 0; first < places.size(); first += together) {
    work(places.subspan(first, together));
  }
}

void StoredRows::write(std::span<const std::int64_t> clients, const Rows& rows) {
  require(rows.layout == layout() && rows.values.scalar_type() == type(),
          "rows keep their layout and type in the store");
  require(rows.values.device() == initial_.values.device() &&
              rows.count() == static_cast<std::int64_t>(clients.size()),
          "one row per client, in the memory that rows are read to");
  const Tensor values = rows.values.contiguous();
  if (on_device(values)) {
    for (const std::int64_t client : clients) slot_for(client);
    each_stretch(clients, [&](std::int64_t first, std::int64_t count, const Place* place) {
      pieces_[place->piece].block.copy_rows_in(place->offset, values.narrow(0, first, count));
    });
    return;
  }
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

std::vector<std::int64_t> StoredRows::unwritten(std::span<const std::int64_t> clients) const {
  std::vector<std::int64_t> unwritten;
  std::ranges::copy_if(clients, std::back_inserter(unwritten),
                       [&](std::int64_t client) { return !written(client); });
  return unwritten;
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
  free_slots_.clear();
  capacity_ = 0;
}

void StoredRows::forget(std::int64_t client) {
  const auto found = slots_.find(client);
  if (found == slots_.end()) return;
  free_slots_.push_back(found->second);
  slots_.erase(found);
}

void StoredRows::copy_out(std::int64_t client, void* to) const {
  const Place place = place_of(slots_.at(client));
  pieces_[place.piece].block.copy_out(place.offset, to, row_bytes_);
}

void StoredRows::copy_in(std::int64_t client, const void* from) {
  const Place place = place_of(slot_for(client));
  pieces_[place.piece].block.copy_in(place.offset, from, row_bytes_);
}

StoreBytes StoredRows::memory_bytes() const {
  StoreBytes bytes;
  (on_device(initial_.values) ? bytes.device : bytes.host) = row_bytes_;
  for (const RowPlacement::Piece& piece : pieces_) {
    (piece.on_device ? bytes.device : bytes.host) += piece.block.bytes();
  }
  return bytes;
}

}  // namespace fedhpc
