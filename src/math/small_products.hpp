#pragma once

#include <cstdint>

#include "math/wide.hpp"

namespace fedhpc {

/// A matrix op(A) as a product reads it: element (i, k) lies at data[i * row_stride + k * step].
template <typename T>
struct Factor {
  const T* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t step = 1;
};

/// A product writes this: C = alpha op(A) op(B) + beta C, row-major with contiguous columns. With
/// beta = 0 the old contents are not read.
template <typename T>
struct Target {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;
  T alpha{1};
  T beta{0};
};

/// A product P = op(A) op(B) writes this: C = C - lr (P + mu (C - centre)), whose rows lie as those
/// of C do.
template <typename T>
struct PulledTarget {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;
  const T* centre = nullptr;
  T lr{0};
  T mu{0};
};

/// C = alpha op(A) B + beta C, where row k of B [inner, columns] starts at b + k * b_stride: weight
/// gradients (op(A) = dY^T) and input gradients. Reads and writes nothing else, packs nothing.
template <typename T>
void small_product(const Factor<T>& a, const T* b, std::int64_t b_stride, std::int64_t inner,
                   const Target<T>& c);

/// Likewise. Rounds as penalised_step_ does on the product.
template <typename T>
void small_product(const Factor<T>& a, const T* b, std::int64_t b_stride, std::int64_t inner,
                   const PulledTarget<T>& c);

/// C = alpha A B^T + beta C, rows of A [rows, inner] and of B [columns, inner] contiguous: forward.
template <typename T>
void small_product_transposed(const T* a, std::int64_t a_stride, const T* b, std::int64_t b_stride,
                              std::int64_t inner, const Target<T>& c);

}  // namespace fedhpc
