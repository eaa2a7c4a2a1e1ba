#pragma once

#include <algorithm>
#include <cstdint>

#include "fedhpc/core/error.hpp"
#include "fedhpc/math/device_kernels.hpp"

namespace fedhpc {

/// A product as cuBLAS takes it, column-major: there a row-major matrix is its own transpose, so
/// result^T = op(b)^T op(a)^T, and b comes first.
struct BlasProduct {
  struct Factor {
    const void* data;
    bool transposed;
    std::int64_t leading;  ///< from one column as cuBLAS sees it to the next
    std::int64_t stack_stride;
  };

  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
  std::int64_t count;
  Factor first;
  Factor second;
  void* result;
  std::int64_t result_leading;
  std::int64_t result_stack_stride;

  explicit BlasProduct(const DeviceProduct& of)
      : m(of.columns),
        n(of.rows),
        k(of.inner),
        count(of.count),
        first(factor(of.b, of.b.transposed ? of.inner : of.columns)),
        second(factor(of.a, of.a.transposed ? of.rows : of.inner)),
        result(of.result.data),
        result_leading(leading(of.result, of.columns)),
        result_stack_stride(of.result.stack_stride) {}

  /// Throws Error where cuBLAS would refuse the arguments.
  void check() const {
    require(m >= 0 && n >= 0 && k >= 0 && count >= 0, "cuBLAS takes no negative sizes");
    require(first.leading >= std::max<std::int64_t>(1, first.transposed ? k : m) &&
                second.leading >= std::max<std::int64_t>(1, second.transposed ? n : k) &&
                result_leading >= std::max<std::int64_t>(1, m),
            "cuBLAS's leading dimensions reach over a column, and are at least 1");
    require(count < 2 || result_stack_stride >= result_leading * (n - 1) + m,
            "cuBLAS's results do not overlap");
    require(k == 0 || (first.data != nullptr && second.data != nullptr),
            "cuBLAS's factors lie somewhere");
    require(result != nullptr, "cuBLAS's results lie somewhere");
  }

 private:
  /// A matrix of a single row, or of no columns, may have a stride that no other could have.
  static std::int64_t leading(const DeviceMatrices& of, std::int64_t columns) {
    return std::max<std::int64_t>({of.row_stride, columns, 1});
  }
  static Factor factor(const DeviceMatrices& of, std::int64_t columns) {
    return {of.data, of.transposed, leading(of, columns), of.stack_stride};
  }
};

}  // namespace fedhpc
