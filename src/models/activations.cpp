#include <set>

#include "fedhpc/models/graph.hpp"

namespace fedhpc {

namespace {

std::vector<Tensor> narrow_all(const std::vector<Tensor>& whole, std::int64_t first,
                               std::int64_t count, std::int64_t batch) {
  std::vector<Tensor> views;
  views.reserve(whole.size());
  for (const Tensor& tensor : whole) {
    views.push_back(tensor.defined() ? tensor.narrow(0, first, count).narrow(1, 0, batch) : tensor);
  }
  return views;
}

/// Adds the memory below `tensors` that `seen` does not hold yet.
std::int64_t count_bytes(const std::vector<Tensor>& tensors, std::set<const void*>& seen) {
  std::int64_t total = 0;
  for (const Tensor& tensor : tensors) {
    if (!tensor.defined() || !seen.insert(tensor.storage().unsafeGetStorageImpl()).second) continue;
    total += static_cast<std::int64_t>(tensor.storage().nbytes());
  }
  return total;
}

}  // namespace

LayerDraws LayerDraws::of_clients(std::int64_t first, std::int64_t count) const {
  LayerDraws part = *this;
  if (!clients.empty()) {
    part.clients =
        clients.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
  }
  return part;
}

DrawKey LayerDraws::key(std::int64_t c, std::int64_t layer) const {
  const auto client = static_cast<std::uint64_t>(clients[static_cast<std::size_t>(c)]);
  return {.seed = seed,
          .purpose = Purpose::Layers,
          .pass = static_cast<std::uint64_t>(pass),
          .epoch = static_cast<std::uint64_t>(step),
          .client = client | static_cast<std::uint64_t>(layer) << 32 |
                    static_cast<std::uint64_t>(call) << 48,
          .round = static_cast<std::uint64_t>(round)};
}

Saved Saved::narrow(std::int64_t first, std::int64_t count, std::int64_t batch) const {
  Saved part;
  for (const Tensor& tensor : per_client) part.per_client.push_back(tensor.narrow(0, first, count));
  part.shared = shared;
  part.of_part = of_part;
  if (!own.empty()) part.own.assign(own.begin() + first, own.begin() + first + count);
  part.per_sample = narrow_all(per_sample, first, count, batch);
  return part;
}

Activations Activations::narrow(std::int64_t first, std::int64_t count, std::int64_t batch) const {
  Activations part{.values = narrow_all(values, first, count, batch),
                   .gradients = narrow_all(gradients, first, count, batch),
                   .parts = narrow_all(parts, first, count, batch),
                   .saved = {},
                   .use = use,
                   .arithmetic = arithmetic,
                   .convolutions = convolutions,
                   .draws = draws.of_clients(first, count)};
  part.saved.reserve(saved.size());
  for (const Saved& one : saved) part.saved.push_back(one.narrow(first, count, batch));
  return part;
}

std::int64_t Activations::bytes() const {
  std::set<const void*> seen;
  std::int64_t total =
      count_bytes(values, seen) + count_bytes(gradients, seen) + count_bytes(parts, seen);
  for (const Saved& one : saved) {
    total += count_bytes(one.per_client, seen) + count_bytes(one.per_sample, seen);
  }
  return total;
}

}  // namespace fedhpc
