#include "fedhpc/factorisations/lora.hpp"

#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>

#include "fedhpc/core/error.hpp"
#include "fedhpc/math/products.hpp"
#include "fedhpc/math/truncated_svd.hpp"

namespace fedhpc {

LoraProduct::LoraProduct(const MatrixView& view, std::int64_t rank, const FactorForm& form)
    : view_(view),
      rank_(rank),
      scale_(form.lora_alpha ? *form.lora_alpha / static_cast<double>(rank) : 1),
      arithmetic_{.summation = form.summation} {
  require(rank_ >= 1, "a decomposition has a rank of 1 or more");
}

void LoraProduct::multiply_(const Tensor& a, const Tensor& b, const Tensor& m, Write write) {
  batched_product(m.scalar_type(), m.size(0), scale_, matrices_in(b, 0, view_.rows(), rank_),
                  Transpose::No, matrices_in(a, 0, rank_, view_.columns()), Transpose::No,
                  write == Write::Add ? 1 : 0, matrices_in(m, 0, view_.rows(), view_.columns()),
                  arithmetic_);
}

void LoraProduct::pull_left_(const Tensor& dm, const Tensor& b, const Tensor& da) {
  batched_product(dm.scalar_type(), dm.size(0), scale_, matrices_in(b, 0, view_.rows(), rank_),
                  Transpose::Yes, matrices_in(dm, 0, view_.rows(), view_.columns()), Transpose::No,
                  0, matrices_in(da, 0, rank_, view_.columns()), arithmetic_);
}

void LoraProduct::pull_right_(const Tensor& dm, const Tensor& a, const Tensor& db) {
  batched_product(dm.scalar_type(), dm.size(0), scale_,
                  matrices_in(dm, 0, view_.rows(), view_.columns()), Transpose::No,
                  matrices_in(a, 0, rank_, view_.columns()), Transpose::Yes, 0,
                  matrices_in(db, 0, view_.rows(), rank_), arithmetic_);
}

Tensor LoraProduct::fit(const Tensor& m) const {
  const BalancedProduct product = truncated_svd(m.view({view_.rows(), view_.columns()}), rank_);
  return at::cat({product.right.t().reshape({-1}), product.left.div(scale_).reshape({-1})});
}

}  // namespace fedhpc
