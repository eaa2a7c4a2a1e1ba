// What a store keeps of clients, on its way to the store of another rank.

#include <algorithm>

#include <ATen/ops/empty.h>

#include "fedhpc/core/error.hpp"
#include "fedhpc/rounds/client_store.hpp"

namespace fedhpc {

std::int64_t ClientStore::bytes_of_client() const {
  std::int64_t bytes = static_cast<std::int64_t>(scalars_.size() * sizeof(double));
  for (const auto& [name, rows] : rows_) bytes += rows->row_bytes();
  return bytes;
}

Tensor ClientStore::pack(std::span<const std::int64_t> clients) const {
  std::int64_t bytes = 0;
  const auto each = [&](const auto& use) {
    for (const auto& [name, rows] : rows_) {
      for (const std::int64_t client : clients) use(*rows, client, rows->row_bytes());
    }
    for (const auto& [name, column] : scalars_) {
      for (const std::int64_t client : clients) {
        use(*column, client, static_cast<std::int64_t>(sizeof(double)));
      }
    }
  };
  each([&](const auto& kept, std::int64_t client, std::int64_t size) {
    bytes += 1 + (kept.written(client) ? size : 0);
  });
  const Tensor packed = at::empty({bytes}, at::kByte);
  auto* to = packed.data_ptr<std::uint8_t>();
  each([&](const auto& kept, std::int64_t client, std::int64_t size) {
    *to++ = kept.written(client) ? 1 : 0;
    if (!kept.written(client)) return;
    kept.copy_out(client, to);
    to += size;
  });
  return packed;
}

void ClientStore::unpack(std::span<const std::int64_t> clients, const void* packed) {
  const auto* from = static_cast<const std::uint8_t*>(packed);
  const auto take = [&](auto& kept, std::int64_t client, std::int64_t size) {
    if (*from++ == 0) return;
    kept.copy_in(client, from);
    from += size;
  };
  for (const auto& [name, rows] : rows_) {
    for (const std::int64_t client : clients) take(*rows, client, rows->row_bytes());
  }
  for (const auto& [name, column] : scalars_) {
    for (const std::int64_t client : clients) take(*column, client, sizeof(double));
  }
}

void ClientStore::take_in(std::vector<std::int64_t> guests) {
  for (const std::int64_t guest : guests) {
    require(!std::ranges::binary_search(clients_.ids(), guest), "a guest is another rank's client");
  }
  for (const auto& [name, rows] : rows_) {
    for (const std::int64_t guest : clients_.guests()) rows->forget(guest);
  }
  clients_.set_guests(std::move(guests));
  for (const auto& [name, column] : scalars_) column->seat_guests();
}

}  // namespace fedhpc
