// The Hadamard product on a device: a few operations for all clients at once.

#include <array>

#include <ATen/ops/empty.h>

#include "fedhpc/factorisations/hadamard.hpp"
#include "fedhpc/math/products.hpp"

namespace fedhpc {

/// With T [q, s, window] of a kernel's Wj = T x_1 X x_2 Y; undefined for a linear layer.
struct Hadamard::CoreProduct {
  Tensor core;    // [C, s q window]  T with its first two dimensions exchanged
  Tensor pulled;  // [C, q in window]  T x_2 Y, by which X is multiplied
};

namespace {

/// [C, a b c] -> [C, b a c]
Tensor exchanged(const Tensor& rows, std::int64_t a, std::int64_t b, std::int64_t c) {
  return rows.view({rows.size(0), a, b, c})
      .transpose(1, 2)
      .contiguous()
      .view({rows.size(0), a * b * c});
}

}  // namespace

Hadamard::CoreProduct Hadamard::core_product(const Half& half) const {
  if (!of_kernels()) return {};
  const std::int64_t in = shape_.sizes[1];
  const std::int64_t clients = half.x.size(0);
  CoreProduct product;
  product.core = exchanged(half.core, rank_, rank_, window_);
  const Tensor by_input = at::empty({clients, in * rank_ * window_}, half.x.options());
  batched_product(by_input.scalar_type(), clients, 1, matrices_in(half.y, 0, in, rank_),
                  Transpose::No, matrices_in(product.core, 0, rank_, rank_ * window_),
                  Transpose::No, 0, matrices_in(by_input, 0, in, rank_ * window_), arithmetic_);
  product.pulled = exchanged(by_input, in, rank_, window_);
  return product;
}

void Hadamard::compose_on_device_(const Half& half, const CoreProduct& product, const Tensor& w) {
  if (!of_kernels()) {
    return matrix_->multiply_(half.x, half.y, w, FactorProduct::Write::Replace);
  }
  const std::int64_t out = shape_.sizes[0];
  const std::int64_t row = shape_.sizes[1] * window_;
  batched_product(w.scalar_type(), w.size(0), 1, matrices_in(half.x, 0, out, rank_), Transpose::No,
                  matrices_in(product.pulled, 0, rank_, row), Transpose::No, 0,
                  matrices_in(w, 0, out, row), arithmetic_);
}

void Hadamard::pull_on_device_(const Half& half, const CoreProduct& product, const Tensor& dw,
                               const Half& gradient) {
  if (!of_kernels()) {
    matrix_->pull_left_(dw, half.y, gradient.x);
    matrix_->pull_right_(dw, half.x, gradient.y);
    return;
  }
  const at::ScalarType type = dw.scalar_type();
  const std::int64_t clients = dw.size(0);
  const std::int64_t out = shape_.sizes[0];
  const std::int64_t in = shape_.sizes[1];
  const MatrixStack of_weights = matrices_in(dw, 0, out, in * window_);
  batched_product(type, clients, 1, of_weights, Transpose::No,
                  matrices_in(product.pulled, 0, rank_, in * window_), Transpose::Yes, 0,
                  matrices_in(gradient.x, 0, out, rank_), arithmetic_);
  const Tensor of_product = at::empty({clients, rank_ * in * window_}, dw.options());
  batched_product(type, clients, 1, matrices_in(half.x, 0, out, rank_), Transpose::Yes, of_weights,
                  Transpose::No, 0, matrices_in(of_product, 0, rank_, in * window_), arithmetic_);
  const Tensor by_input = exchanged(of_product, rank_, in, window_);
  const MatrixStack pulled = matrices_in(by_input, 0, in, rank_ * window_);
  batched_product(type, clients, 1, pulled, Transpose::No,
                  matrices_in(product.core, 0, rank_, rank_ * window_), Transpose::Yes, 0,
                  matrices_in(gradient.y, 0, in, rank_), arithmetic_);
  const Tensor of_core = at::empty({clients, rank_ * rank_ * window_}, dw.options());
  batched_product(type, clients, 1, matrices_in(half.y, 0, in, rank_), Transpose::Yes, pulled,
                  Transpose::No, 0, matrices_in(of_core, 0, rank_, rank_ * window_), arithmetic_);
  gradient.core.view({clients, rank_, rank_, window_})
      .copy_(of_core.view({clients, rank_, rank_, window_}).transpose(1, 2));
}

void Hadamard::expand_on_device_(const Tensor& u, const Tensor& w) {
  const Tensor second = at::empty({u.size(0), shape_.count()}, u.options());
  for (const std::size_t j : {0, 1}) {
    compose_on_device_(half(u, j), core_product(half(u, j)), j == 0 ? w : second);
  }
  w.mul_(second);
}

void Hadamard::pullback_on_device_(const Tensor& u, const Tensor& dw, const Tensor& du) {
  const std::array<Half, 2> halves{half(u, 0), half(u, 1)};
  const std::array<CoreProduct, 2> products{core_product(halves[0]), core_product(halves[1])};
  const Tensor of_half = at::empty({u.size(0), shape_.count()}, u.options());
  for (const std::size_t j : {0, 1}) {
    compose_on_device_(halves[1 - j], products[1 - j], of_half);
    of_half.mul_(dw);
    pull_on_device_(halves[j], products[j], of_half, half(du, j));
  }
}

}  // namespace fedhpc
