#include "fedhpc/factorisations/kronecker.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/Dispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

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

KroneckerProduct::KroneckerProduct(const MatrixView& view, std::int64_t blocks, BlockLayout layout)
    : numbers_(view.rows() * view.columns()),
      blocks_(blocks),
      side_(least_side(numbers_, blocks)),
      in_row_(1) {
  require(blocks_ >= 1, "a decomposition has one block or more");
  if (layout == BlockLayout::Stacked) return;
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
  const double share = (trained == Trained::Right ? 2 : 1) / rate.value;
  const double blocks = share * share * numbers / 4;
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

template <typename T>
void KroneckerProduct::multiply(const T* u, const T* v, T* m, Write write) const {
  const std::int64_t z = side_;
  each_row(
      [&](std::int64_t b, std::int64_t i, std::int64_t k, std::int64_t offset, std::int64_t count) {
        const T* of_u = u + (b * z + i) * z;
        const T* of_v = v + (b * z + k) * z;
        for (std::int64_t j = 0; j * z < count; ++j) {
          T* __restrict out = m + offset + j * z;
          const T factor = of_u[j];
          const std::int64_t length = std::min(z, count - j * z);
          if (write == Write::Replace) {
            for (std::int64_t l = 0; l < length; ++l) out[l] = factor * of_v[l];
          } else {
            for (std::int64_t l = 0; l < length; ++l) out[l] += factor * of_v[l];
          }
        }
      });
}

template <typename T>
void KroneckerProduct::pull_left(const T* dm, const T* v, T* du) const {
  const std::int64_t z = side_;
  std::fill_n(du, blocks_ * z * z, T(0));
  each_row(
      [&](std::int64_t b, std::int64_t i, std::int64_t k, std::int64_t offset, std::int64_t count) {
        T* of_u = du + (b * z + i) * z;
        const T* of_v = v + (b * z + k) * z;
        for (std::int64_t j = 0; j * z < count; ++j) {
          const T* d = dm + offset + j * z;
          const std::int64_t length = std::min(z, count - j * z);
          T sum = 0;
          for (std::int64_t l = 0; l < length; ++l) sum += d[l] * of_v[l];
          of_u[j] += sum;
        }
      });
}

template <typename T>
void KroneckerProduct::pull_right(const T* dm, const T* u, T* dv) const {
  const std::int64_t z = side_;
  std::fill_n(dv, blocks_ * z * z, T(0));
  each_row(
      [&](std::int64_t b, std::int64_t i, std::int64_t k, std::int64_t offset, std::int64_t count) {
        const T* of_u = u + (b * z + i) * z;
        T* __restrict of_v = dv + (b * z + k) * z;
        for (std::int64_t j = 0; j * z < count; ++j) {
          const T* d = dm + offset + j * z;
          const T factor = of_u[j];
          const std::int64_t length = std::min(z, count - j * z);
          for (std::int64_t l = 0; l < length; ++l) of_v[l] += factor * d[l];
        }
      });
}

void KroneckerProduct::multiply_(const Tensor& u, const Tensor& v, const Tensor& m, Write write) {
  AT_DISPATCH_FLOATING_TYPES(m.scalar_type(), "kronecker_multiply", [&] {
    for (std::int64_t c = 0; c < m.size(0); ++c) {
      multiply(u.const_data_ptr<scalar_t>() + c * u.stride(0),
               v.const_data_ptr<scalar_t>() + c * v.stride(0),
               m.data_ptr<scalar_t>() + c * m.stride(0), write);
    }
  });
}

void KroneckerProduct::pull_left_(const Tensor& dm, const Tensor& v, const Tensor& du) {
  AT_DISPATCH_FLOATING_TYPES(dm.scalar_type(), "kronecker_pull_left", [&] {
    for (std::int64_t c = 0; c < dm.size(0); ++c) {
      pull_left(dm.const_data_ptr<scalar_t>() + c * dm.stride(0),
                v.const_data_ptr<scalar_t>() + c * v.stride(0),
                du.data_ptr<scalar_t>() + c * du.stride(0));
    }
  });
}

void KroneckerProduct::pull_right_(const Tensor& dm, const Tensor& u, const Tensor& dv) {
  AT_DISPATCH_FLOATING_TYPES(dm.scalar_type(), "kronecker_pull_right", [&] {
    for (std::int64_t c = 0; c < dm.size(0); ++c) {
      pull_right(dm.const_data_ptr<scalar_t>() + c * dm.stride(0),
                 u.const_data_ptr<scalar_t>() + c * u.stride(0),
                 dv.data_ptr<scalar_t>() + c * dv.stride(0));
    }
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
