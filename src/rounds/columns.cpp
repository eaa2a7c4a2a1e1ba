#include <algorithm>
#include <span>

#include <ATen/TensorOperators.h>
#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/core/to_device.hpp"
#include "fedhpc/math/network_lasso.hpp"
#include "fedhpc/rounds/coupling.hpp"

namespace fedhpc {

namespace {

/// The columns of one rank: the rest of a division goes to the last ranks.
Range columns_of_rank(std::int64_t columns, std::int64_t multiple, int rank, int ranks) {
  const std::int64_t pieces = (columns + multiple - 1) / multiple;
  const auto first = [&](std::int64_t r) {
    return std::min(columns, multiple * (pieces * r / ranks));
  };
  return {first(rank), first(rank + 1)};
}

}  // namespace

Range Coupling::own_columns(std::int64_t columns, std::int64_t multiple) const {
  return columns_of_rank(columns, multiple, comm_.rank(), comm_.size());
}

Tensor Coupling::to_columns(const Rows& rows, std::int64_t multiple) const {
  check(rows);
  const Tensor& values = rows.values;
  // As plain numbers: every rank has clients and columns of its own number.
  std::vector<Tensor> parts;
  for (int rank = 0; rank < comm_.size(); ++rank) {
    const auto [begin, end] = columns_of_rank(values.size(1), multiple, rank, comm_.size());
    parts.push_back(values.slice(1, begin, end).reshape({-1}));
  }
  parts = comm_.all_to_all(parts);
  const Tensor gathered =
      at::cat(parts).view({count(), own_columns(values.size(1), multiple).size()});
  parts.clear();
  return in_client_order(gathered);
}

void Coupling::from_columns_(const Rows& rows, const Tensor& columns, std::int64_t multiple) const {
  check(rows);
  const Tensor& values = rows.values;
  const auto [first, last] = own_columns(values.size(1), multiple);
  require(columns.size(0) == count() && columns.size(1) == last - first,
          "columns as to_columns has given them");
  std::vector<Tensor> parts;  // in the order of ranks, as plain numbers
  std::size_t next = 0;
  for (const std::int64_t clients : counts_) {
    const auto positions = std::span(positions_).subspan(next, static_cast<std::size_t>(clients));
    parts.push_back(columns.index_select(0, to_device(positions, columns.device())).reshape({-1}));
    next += positions.size();
  }
  parts = comm_.all_to_all(parts);
  for (int rank = 0; rank < comm_.size(); ++rank) {
    const auto [begin, end] = columns_of_rank(values.size(1), multiple, rank, comm_.size());
    const Tensor place = values.slice(1, begin, end);
    place.copy_(parts[static_cast<std::size_t>(rank)].reshape(place.sizes()));
  }
}

Tensor Coupling::over_pairs(
    const std::vector<Tensor>& matrices, std::int64_t columns,
    const std::function<double(const Tensor& of_i, const Tensor& of_j)>& value) const {
  const std::span<const std::int64_t> own = own_positions();
  require(matrices.size() == own.size(), "one matrix of each client of this rank");
  Tensor values = at::zeros({static_cast<std::int64_t>(own.size()), count()}, at::kDouble);
  for (std::int64_t j = 0; j < count(); ++j) {
    Tensor mine = at::empty({0, columns}, at::kDouble);
    for (std::size_t r = 0; r < own.size(); ++r) {
      if (own[r] == j) mine = matrices[r].contiguous();
    }
    const Tensor of_j = comm_.all_gather(mine);
    for (std::size_t r = 0; r < own.size(); ++r) {
      if (own[r] > j) continue;
      values[static_cast<std::int64_t>(r)][j].fill_(value(matrices[r], of_j));
      comm_.progress();
    }
  }
  const Tensor upper = in_client_order(comm_.all_gather(values));
  return upper.triu() + upper.triu(1).t();
}

NetworkLassoReport Coupling::solve_(NetworkLasso& lasso, const Tensor& columns,
                                    const Tensor& target, double eta) const {
  return lasso.solve_(comm_, columns, target, eta);
}

}  // namespace fedhpc
