// Kernels of all clients at a time.

#include <ATen/ops/empty.h>

#include "fedhpc/factorisations/hadamard.hpp"
#include "fedhpc/math/products.hpp"

namespace fedhpc {

namespace {

/// result[c] = op(a[c]) op(b[c]), of stacks [C, rows, columns].
void multiply(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
              const Tensor& result) {
  batched_product(a.scalar_type(), a.size(0), 1, matrices_of(a), transpose_a, matrices_of(b),
                  transpose_b, 0, matrices_of(result));
}

/// Rows of numbers as matrices, in the same memory.
Tensor matrices(const Tensor& rows, std::int64_t height, std::int64_t width) {
  return rows.unflatten(1, {height, width});
}

/// [C, a, b window] -> [C, b, a window]
Tensor turned(const Tensor& stack, std::int64_t window) {
  return stack.unflatten(2, {-1, window}).transpose(1, 2).flatten(2).contiguous();
}

}  // namespace

Tensor Hadamard::between_on_device(const Half& half) const {
  const std::int64_t out = shape_.sizes[0];
  const Tensor between = at::empty({half.x.size(0), out, rank_ * window_}, half.x.options());
  multiply(matrices(half.x, out, rank_), Transpose::No, matrices(half.core, rank_, rank_ * window_),
           Transpose::No, between);
  return turned(between, window_);
}

void Hadamard::compose_on_device(const Half& half, const Tensor& w) const {
  const std::int64_t out = shape_.sizes[0];
  const std::int64_t in = shape_.sizes[1];
  const Tensor by_inputs = at::empty({w.size(0), in, out * window_}, w.options());
  multiply(matrices(half.y, in, rank_), Transpose::No, between_on_device(half), Transpose::No,
           by_inputs);
  matrices(w, out, in * window_).copy_(turned(by_inputs, window_));
}

void Hadamard::pull_on_device(const Half& half, const Tensor& dw, const Half& gradient) const {
  const std::int64_t out = shape_.sizes[0];
  const std::int64_t in = shape_.sizes[1];
  const Tensor by_inputs = turned(matrices(dw, out, in * window_), window_);
  multiply(by_inputs, Transpose::No, between_on_device(half), Transpose::Yes,
           matrices(gradient.y, in, rank_));
  const Tensor of_between = at::empty({dw.size(0), rank_, out * window_}, dw.options());
  multiply(matrices(half.y, in, rank_), Transpose::Yes, by_inputs, Transpose::No, of_between);
  const Tensor by_outputs = turned(of_between, window_);  // [C, out, r window]
  multiply(by_outputs, Transpose::No, matrices(half.core, rank_, rank_ * window_), Transpose::Yes,
           matrices(gradient.x, out, rank_));
  multiply(matrices(half.x, out, rank_), Transpose::Yes, by_outputs, Transpose::No,
           matrices(gradient.core, rank_, rank_ * window_));
}

}  // namespace fedhpc
