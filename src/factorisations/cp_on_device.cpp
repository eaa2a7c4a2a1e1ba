// The canonical polyadic decomposition on a device: a few operations for all clients at once.

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/factorisations/cp.hpp"
#include "fedhpc/factorisations/device_kernels.hpp"
#include "fedhpc/math/products.hpp"

namespace fedhpc {

namespace {

/// out [C, o, R] = the sum over dimension `over` of g [C, p, i, R] times the factor [C, ., R].
void contract_over(std::int64_t over, const Tensor& g, const Tensor& factor, const Tensor& out) {
  device_kernels<FactorKernels>().contract({.type = real_of(g),
                                            .g = device_stack(g.select(over, 0)),
                                            .inner_stride = g.stride(over),
                                            .factor = device_stack(factor),
                                            .out = device_stack(out)});
}

DeviceMatrices matrices_on_device(const Tensor& stack) {
  return {.data = stack.data_ptr(), .stack_stride = stack.stride(0), .row_stride = stack.stride(1)};
}

}  // namespace

Tensor Cp::factor_in(const Tensor& rows, std::size_t dimension) const {
  return rows.narrow(1, column(dimension), size(dimension) * rank_)
      .view({rows.size(0), size(dimension), rank_});
}

std::vector<Tensor> Cp::khatri_rao_on_device(const Group& group, const Tensor& u) const {
  std::vector<Tensor> products{factor_in(u, group.dimensions.front())};
  for (std::size_t k = 1; k < group.dimensions.size(); ++k) {
    const Tensor& before = products.back();
    const Tensor factor = factor_in(u, group.dimensions[k]);
    Tensor next = at::empty({u.size(0), before.size(1), factor.size(1), rank_}, u.options());
    at::mul_out(next, before.unsqueeze(2), factor.unsqueeze(1));
    products.push_back(next.view({u.size(0), -1, rank_}));
  }
  return products;
}

void Cp::contract_on_device_(const Group& group, const std::vector<Tensor>& products,
                             const Tensor& gradient, const Tensor& u, const Tensor& du) const {
  // As contract(): with G [C, prefix, i, R] dA[i] = sum over the prefix of P * G[., i], and for the
  // prefix sum over i of A[i] * G[., i] is left.
  const std::int64_t clients = u.size(0);
  Tensor rest = gradient;
  for (std::size_t k = group.dimensions.size(); k-- > 1;) {
    const std::size_t dimension = group.dimensions[k];
    const Tensor g = rest.view({clients, -1, size(dimension), rank_});
    contract_over(1, g, products[k - 1], factor_in(du, dimension));
    const bool last = k == 1;
    rest = last ? factor_in(du, group.dimensions.front())
                : at::empty({clients, g.size(1), rank_}, u.options());
    contract_over(2, g, factor_in(u, dimension), rest);
  }
}

template <typename Multiply>
void Cp::pull_on_device_(const std::vector<Tensor>& left, const std::vector<Tensor>& right,
                         const Tensor& u, const Tensor& du, const Multiply& multiply) const {
  const auto pull = [&](const Group& group, const std::vector<Tensor>& products,
                        const Tensor& other, Transpose transpose) {
    // A group of one dimension needs no contraction: its product is the factor's gradient.
    const bool single = group.dimensions.size() == 1;
    const Tensor gradient = single ? factor_in(du, group.dimensions.front())
                                   : at::empty({u.size(0), length(group), rank_}, u.options());
    multiply(products.back(), other, transpose, gradient);
    if (!single) contract_on_device_(group, products, gradient, u, du);
  };
  pull(left_, left, right.back(), Transpose::No);
  pull(right_, right, left.back(), Transpose::Yes);
}

void Cp::compose_on_device_(const Tensor& left, const Tensor& right, const Tensor& w) const {
  // Always reproducible: what is composed for some clients of a block is what was composed for all.
  batched_product(left.scalar_type(), left.size(0), 1, matrices_of(left), Transpose::No,
                  matrices_of(right), Transpose::Yes, 0,
                  matrices_in(w, 0, length(left_), length(right_)),
                  {.summation = Summation::Reproducible});
}

void Cp::expand_on_device_(const Tensor& u, const Tensor& w) const {
  compose_on_device_(khatri_rao_on_device(left_, u).back(), khatri_rao_on_device(right_, u).back(),
                     w);
}

void Cp::pullback_on_device_(const Tensor& u, const Tensor& dw, const Tensor& du) const {
  pull_on_device_(
      khatri_rao_on_device(left_, u), khatri_rao_on_device(right_, u), u, du,
      [&](const Tensor& /*own*/, const Tensor& other, Transpose transpose, const Tensor& gradient) {
        batched_product(u.scalar_type(), u.size(0), 1,
                        matrices_in(dw, 0, length(left_), length(right_)), transpose,
                        matrices_of(other), Transpose::No, 0, matrices_of(gradient), arithmetic_);
      });
}

void Cp::distance_gradient_on_device_(const Tensor& u, const Tensor& w, double scale,
                                      const Tensor& du) const {
  // [[A]] is rounded as by expand_(): where w is what that has given, the residual is 0, and Adam
  // makes no steps of rounding errors.
  pull_on_device_(
      khatri_rao_on_device(left_, u), khatri_rao_on_device(right_, u), u, du,
      [&](const Tensor& own, const Tensor& other, Transpose transpose, const Tensor& gradient) {
        device_kernels<FactorKernels>().residual_product(
            {.type = real_of(u),
             .count = u.size(0),
             .rows = own.size(1),
             .columns = other.size(1),
             .rank = rank_,
             .scale = scale,
             .own = matrices_on_device(own),
             .other = matrices_on_device(other),
             .w = {.data = w.data_ptr(),
                   .stack_stride = w.stride(0),
                   .row_stride = length(right_),
                   .transposed = transpose == Transpose::Yes},
             .out = matrices_on_device(gradient)});
      });
}

}  // namespace fedhpc
