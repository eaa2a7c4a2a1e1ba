#include "fedhpc/factorisations/low_rank.hpp"

#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>

#include "fedhpc/core/error.hpp"
#include "fedhpc/math/products.hpp"
#include "fedhpc/math/truncated_svd.hpp"

namespace fedhpc {

LowRankProduct::LowRankProduct(const MatrixView& view, std::int64_t rank, Summation summation)
    : view_(view), rank_(rank), arithmetic_{.summation = summation} {
  require(rank_ >= 1, "a decomposition has a rank of 1 or more");
}

std::int64_t LowRankProduct::rank_of(const MatrixView& view, CompressionRate rate,
                                     Trained trained) {
  return rank_within(view, rate, view.columns() + (trained == Trained::Right ? 0 : view.rows()));
}

void LowRankProduct::multiply_(const Tensor& u, const Tensor& v, const Tensor& m, Write write) {
  batched_product(m.scalar_type(), m.size(0), 1, matrices_in(u, 0, view_.rows(), rank_),
                  Transpose::No, matrices_in(v, 0, view_.columns(), rank_), Transpose::Yes,
                  write == Write::Add ? 1 : 0, matrices_in(m, 0, view_.rows(), view_.columns()),
                  arithmetic_);
}

void LowRankProduct::pull_left_(const Tensor& dm, const Tensor& v, const Tensor& du) {
  batched_product(dm.scalar_type(), dm.size(0), 1,
                  matrices_in(dm, 0, view_.rows(), view_.columns()), Transpose::No,
                  matrices_in(v, 0, view_.columns(), rank_), Transpose::No, 0,
                  matrices_in(du, 0, view_.rows(), rank_), arithmetic_);
}

void LowRankProduct::pull_right_(const Tensor& dm, const Tensor& u, const Tensor& dv) {
  batched_product(dm.scalar_type(), dm.size(0), 1,
                  matrices_in(dm, 0, view_.rows(), view_.columns()), Transpose::Yes,
                  matrices_in(u, 0, view_.rows(), rank_), Transpose::No, 0,
                  matrices_in(dv, 0, view_.columns(), rank_), arithmetic_);
}

Tensor LowRankProduct::fit(const Tensor& m) const {
  const BalancedProduct product = truncated_svd(m.view({view_.rows(), view_.columns()}), rank_);
  return at::cat({product.left.reshape({-1}), product.right.reshape({-1})});
}

}  // namespace fedhpc
