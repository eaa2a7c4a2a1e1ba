#include <algorithm>
#include <numeric>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "fedhpc/rounds/coupling.hpp"

namespace fedhpc {

namespace {

/// The columns [begin, end) of one rank: the rest of a division goes to the last ranks.
std::pair<std::int64_t, std::int64_t> columns_of_rank(std::int64_t columns, int rank, int ranks) {
  return {columns * rank / ranks, columns * (rank + 1) / ranks};
}

}  // namespace

std::pair<std::int64_t, std::int64_t> Coupling::own_columns(std::int64_t columns) const {
  return columns_of_rank(columns, comm_.rank(), comm_.size());
}

void Coupling::by_columns(
    const Rows& rows,
    const std::function<void(const Tensor& slab, std::int64_t first_column)>& edit) const {
  check(rows);
  const Tensor& values = rows.values;
  const auto part_of = [&](int rank) {
    const auto [begin, end] = columns_of_rank(values.size(1), rank, comm_.size());
    return values.slice(1, begin, end);
  };
  std::vector<Tensor> parts;  // of every rank: [N_r, its columns], then [its clients, own columns]
  for (int rank = 0; rank < comm_.size(); ++rank) parts.push_back(part_of(rank).contiguous());
  parts = comm_.all_to_all(parts);

  Tensor slab;  // [N, own columns]
  {
    const Tensor gathered = at::cat(parts);
    parts.clear();
    slab = in_client_order(gathered);
  }
  const auto [first, last] = own_columns(values.size(1));
  if (slab.numel() > 0) edit(slab, first);

  // Back in the order of ranks, as plain numbers: every rank has columns of its own width.
  std::int64_t next = 0;
  for (const std::int64_t clients : counts_) {
    Tensor part = at::empty({clients, last - first}, slab.options());
    for (std::int64_t c = 0; c < clients; ++c) {
      part[c].copy_(slab[positions_[static_cast<std::size_t>(next++)]]);
    }
    parts.push_back(part.reshape({-1}));
  }
  slab.reset();
  parts = comm_.all_to_all(parts);
  for (int rank = 0; rank < comm_.size(); ++rank) {
    const Tensor place = part_of(rank);
    place.copy_(parts[static_cast<std::size_t>(rank)].reshape(place.sizes()));
  }
}

}  // namespace fedhpc
