// Kronecker products on a device: all blocks of all clients at once.

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/factorisations/kronecker.hpp"

namespace fedhpc {

Tensor KroneckerProduct::by_block(const Tensor& numbers) const {
  const std::int64_t z = side_;
  return numbers.view({numbers.size(0), blocks_ / in_row_, z, z, in_row_, z, z});
}

void KroneckerProduct::multiply_on_device_(const Tensor& u, const Tensor& v, const Tensor& m,
                                           Write write) const {
  const std::int64_t z = side_;
  const std::int64_t clients = m.size(0);
  const std::int64_t below = blocks_ / in_row_;
  // [C, p, i, k, q, j, l]
  const Tensor left = u.view({clients, below, in_row_, z, z, 1, 1}).permute({0, 1, 3, 5, 2, 4, 6});
  const Tensor right = v.view({clients, below, in_row_, 1, 1, z, z}).permute({0, 1, 3, 5, 2, 4, 6});
  const bool whole = numbers_ == all_numbers();
  if (whole && write == Write::Add) {
    by_block(m).addcmul_(left, right);
    return;
  }
  const Tensor numbers = whole ? m : at::empty({clients, all_numbers()}, m.options());
  Tensor blocks = by_block(numbers);
  at::mul_out(blocks, left, right);
  if (whole) return;
  const Tensor of_matrix = numbers.narrow(1, 0, numbers_);
  if (write == Write::Replace) {
    m.copy_(of_matrix);
  } else {
    m.add_(of_matrix);
  }
}

Tensor KroneckerProduct::arranged(const Tensor& dm) const {
  if (!on_device(dm)) return dm;
  const Tensor whole =
      numbers_ == all_numbers() ? dm : at::constant_pad_nd(dm, {0, all_numbers() - numbers_});
  // [C, p, i, k, q, j, l] -> [C, p, q, i, j, k, l]
  return by_block(whole).permute({0, 1, 4, 2, 5, 3, 6}).reshape({dm.size(0), all_numbers()});
}

void KroneckerProduct::pull_on_device_(const Tensor& arranged, Transpose transpose,
                                       const Tensor& other, const Tensor& out) const {
  const std::int64_t width = side_ * side_;
  const std::int64_t count = out.size(0) * blocks_;
  // One matrix for each block: the factors of all clients' blocks side by side.
  const Tensor blocks = arranged.reshape({count, width * width});
  const Tensor vectors = other.reshape({count, width});
  const Tensor pulled = out.is_contiguous() ? out : at::empty(out.sizes(), out.options());
  batched_product(out.scalar_type(), count, 1, matrices_in(blocks, 0, width, width), transpose,
                  matrices_in(vectors, 0, width, 1), Transpose::No, 0,
                  matrices_in(pulled.view({count, width}), 0, width, 1), arithmetic_);
  if (!pulled.is_same(out)) out.copy_(pulled);
}

}  // namespace fedhpc
