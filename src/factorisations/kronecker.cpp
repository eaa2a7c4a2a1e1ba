#include "fedhpc/factorisations/kronecker.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/Dispatch.h>
#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/math/truncated_svd.hpp"

namespace fedhpc {

namespace {

std::int64_t least_side(std::int64_t numbers, std::int64_t blocks) {
  std::int64_t side = 1;
  while (blocks * side * side * side * side < numbers) ++side;
  return side;
}

}  // namespace

KroneckerProduct::KroneckerProduct(const MatrixView& view, std::int64_t blocks,
                                   const FactorForm& form)
    : numbers_(view.rows() * view.columns()),
      blocks_(blocks),
      side_(least_side(numbers_, blocks)),
      in_row_(1),
      arithmetic_{.summation = form.summation} {
  require(blocks_ >= 1, "a decomposition has one block or more");
  if (form.blocks == BlockLayout::Stacked) return;
  in_row_ = std::llround(std::sqrt(static_cast<double>(blocks_)));
  if (in_row_ * in_row_ != blocks_) {
    throw ConfigError(concat("model.rank = ", blocks_,
                             " blocks do not make a grid of k by k (model.block_layout = grid); "
                             "allowed: square numbers"));
  }
}

std::int64_t KroneckerProduct::rank_of(const MatrixView& view, CompressionRate rate,
                                       Trained trained, BlockLayout layout) {
  const auto numbers = static_cast<double>(view.rows() * view.columns());
  // One division: a sum that is rounded would make a block, or a row of blocks, more.
  const double blocks = numbers / ((trained == Trained::Right ? 1 : 4) * rate.value * rate.value);
  if (layout == BlockLayout::Stacked) {
    return std::max<std::int64_t>(1, std::llround(std::ceil(blocks)));
  }
  const auto k = std::max<std::int64_t>(1, std::llround(std::ceil(std::sqrt(blocks))));
  return k * k;
}

template <typename Work>
void KroneckerProduct::each_row(const Work& work) const {
  const std::int64_t width = side_ * side_;
  const std::int64_t stride = in_row_ * width;  // of the matrix of all blocks
  for (std::int64_t b = 0; b < blocks_; ++b) {
    const std::int64_t corner = (b / in_row_) * width * stride + (b % in_row_) * width;
    for (std::int64_t row = 0; row < width; ++row) {
      const std::int64_t offset = corner + row * stride;
      const std::int64_t count = std::min(width, numbers_ - offset);
      if (count <= 0) break;
      work(b, row / side_, row % side_, offset, count);
    }
  }
}

template <typename Work>
void KroneckerProduct::each_part(const Work& work) const {
  const std::int64_t z = side_;
  each_row(
      [&](std::int64_t b, std::int64_t i, std::int64_t k, std::int64_t offset, std::int64_t count) {
        const std::int64_t of_u = (b * z + i) * z;
        const std::int64_t of_v = (b * z + k) * z;
        for (std::int64_t j = 0; j * z < count; ++j) {
          work(of_u + j, of_v, offset + j * z, std::min(z, count - j * z));
        }
      });
}

namespace {

/// Calls work(a, b, c) with each client's numbers of the three.
template <typename Work>
void each_client(const Tensor& a, const Tensor& b, const Tensor& c, const Work& work) {
  AT_DISPATCH_FLOATING_TYPES(c.scalar_type(), "kronecker", [&] {
    for (std::int64_t k = 0; k < c.size(0); ++k) {
      work(a.const_data_ptr<scalar_t>() + k * a.stride(0),
           b.const_data_ptr<scalar_t>() + k * b.stride(0),
           c.data_ptr<scalar_t>() + k * c.stride(0));
    }
  });
}

}  // namespace

void KroneckerProduct::multiply_(const Tensor& u, const Tensor& v, const Tensor& m, Write write) {
  if (on_device(m)) return multiply_on_device_(u, v, m, write);
  each_client(u, v, m, [&](const auto* of_u, const auto* of_v, auto* of_m) {
    each_part([&](std::int64_t f, std::int64_t g, std::int64_t offset, std::int64_t length) {
      const auto factor = of_u[f];
      const auto* right = of_v + g;
      auto* __restrict out = of_m + offset;
      if (write == Write::Replace) {
        for (std::int64_t l = 0; l < length; ++l) out[l] = factor * right[l];
      } else {
        for (std::int64_t l = 0; l < length; ++l) out[l] += factor * right[l];
      }
    });
  });
}

void KroneckerProduct::pull_left_(const Tensor& dm, const Tensor& v, const Tensor& du) {
  if (on_device(du)) return pull_on_device_(dm, Transpose::No, v, du);
  du.zero_();
  each_client(dm, v, du, [&](const auto* of_dm, const auto* of_v, auto* of_du) {
    each_part([&](std::int64_t f, std::int64_t g, std::int64_t offset, std::int64_t length) {
      const auto* gradient = of_dm + offset;
      const auto* right = of_v + g;
      auto sum = gradient[0] * right[0];
      for (std::int64_t l = 1; l < length; ++l) sum += gradient[l] * right[l];
      of_du[f] += sum;
    });
  });
}

void KroneckerProduct::pull_right_(const Tensor& dm, const Tensor& u, const Tensor& dv) {
  if (on_device(dv)) return pull_on_device_(dm, Transpose::Yes, u, dv);
  dv.zero_();
  each_client(dm, u, dv, [&](const auto* of_dm, const auto* of_u, auto* of_dv) {
    each_part([&](std::int64_t f, std::int64_t g, std::int64_t offset, std::int64_t length) {
      const auto* gradient = of_dm + offset;
      const auto factor = of_u[f];
      auto* __restrict out = of_dv + g;
      for (std::int64_t l = 0; l < length; ++l) out[l] += factor * gradient[l];
    });
  });
}

Tensor KroneckerProduct::fit(const Tensor& m) const {
  const std::int64_t z = side_;
  const std::int64_t width = z * z;
  const Tensor blocks = at::zeros({blocks_, width, width}, at::kDouble);
  each_row(
      [&](std::int64_t b, std::int64_t i, std::int64_t k, std::int64_t offset, std::int64_t count) {
        blocks[b][i * z + k].narrow(0, 0, count).copy_(m.narrow(0, offset, count));
      });
  // Entry ((i, k), (j, l)) of a block becomes ((i, j), (k, l)): U (x) V is then a product of
  // columns.
  const Tensor rearranged =
      blocks.view({blocks_, z, z, z, z}).permute({0, 1, 3, 2, 4}).reshape({blocks_, width, width});
  std::vector<Tensor> left;
  std::vector<Tensor> right;
  for (std::int64_t b = 0; b < blocks_; ++b) {
    const BalancedProduct product = truncated_svd(rearranged[b], 1);
    left.push_back(product.left.reshape({-1}));
    right.push_back(product.right.reshape({-1}));
  }
  left.insert(left.end(), right.begin(), right.end());
  return at::cat(left);
}

}  // namespace fedhpc
