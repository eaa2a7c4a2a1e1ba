// The factors that come close to given weights.

#include <algorithm>

#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cholesky_solve.h>
#include <ATen/ops/linalg_cholesky_ex.h>
#include <ATen/ops/zeros_like.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/factorisations/cp.hpp"
#include "fedhpc/math/truncated_svd.hpp"

namespace fedhpc {

namespace {

/// Of the largest Gram entry: keeps least squares solvable where factors are dependent, and the
/// solution near the factor there was.
constexpr double kRidge = 1e-10;

}  // namespace

Tensor Cp::fit(const Tensor& w, const Tensor& start, std::int64_t sweeps) {
  const Tensor weights = on_host(w).to(at::kDouble).reshape({1, shape_.count()});
  if (shape_.sizes.size() == 2) return fit_matrix(weights).to(w.device(), w.scalar_type());
  Tensor u =
      on_host(start).to(at::kDouble, /*non_blocking=*/false, /*copy=*/true).reshape({1, count()});
  for (std::int64_t sweep = 0; sweep < sweeps; ++sweep) {
    for (std::size_t d = shape_.sizes.size(); d-- > 0;) least_squares_(u, weights, d);
  }
  return u.reshape({count()}).to(w.device(), w.scalar_type());
}

Tensor Cp::fit_matrix(const Tensor& w) const {
  const BalancedProduct product = truncated_svd(w.reshape(shape_.sizes).t(), rank_);
  return at::cat({product.left.reshape({-1}), product.right.reshape({-1})});
}

void Cp::least_squares_(Tensor& u, const Tensor& w, std::size_t dimension) {
  // min over A of ||w_(n) - A H_n^T||^2 + ridge ||A - A_before||^2: A (V_n + ridge) = w_(n) H_n +
  // ridge A_before with V_n = H_n^T H_n, the elementwise product of the other factors' Gram
  // matrices.
  const auto factor = [&](std::size_t d) {
    return u[0].narrow(0, column(d), size(d) * rank_).view({size(d), rank_});
  };
  Tensor gram;
  for (std::size_t d = 0; d < shape_.sizes.size(); ++d) {
    if (d == dimension) continue;
    const Tensor of_factor = factor(d).t().matmul(factor(d));
    gram = gram.defined() ? gram.mul(of_factor) : of_factor;
  }
  const double ridge = kRidge * gram.diagonal().max().item<double>();
  if (ridge == 0) return;  // the other factors say nothing
  gram.diagonal().add_(ridge);
  Tensor products = at::zeros_like(u);
  pullback_(u, w, products);
  const Tensor right = products[0]
                           .narrow(0, column(dimension), size(dimension) * rank_)
                           .view({size(dimension), rank_})
                           .add(factor(dimension), ridge);
  const auto [root, failed] = at::linalg_cholesky_ex(gram);
  if (failed.item<int>() != 0) return;  // not solvable in float64: the factor stays
  factor(dimension).copy_(at::cholesky_solve(right.t(), root).t());
}

}  // namespace fedhpc
