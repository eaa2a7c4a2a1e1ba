#pragma once

#include <cstdint>

#include "fedhpc/core/context.hpp"

namespace fedhpc {

/// C equally shaped matrices in one buffer, seen without copying: row-major, the columns
/// contiguous.
struct MatrixStack {
  void* data = nullptr;
  std::int64_t stack_stride =
      0;  ///< values from one matrix to the next; 0: the same matrix C times
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;  ///< values from one row to the next
  bool on_device = false;       ///< `data` is an address of device memory
};

/// The matrices [height, width] that start at `column` of every row of `rows` [C, n]. Rows may lie
/// apart, or be the same one C times.
MatrixStack matrices_in(const Tensor& rows, std::int64_t column, std::int64_t height,
                        std::int64_t width);

/// The matrices of a tensor [C, rows, columns].
MatrixStack matrices_of(const Tensor& stack);

enum class Transpose { No, Yes };

/// float32 values as factors of this precision, to nearest with ties to even; float64 ones and
/// those of full precision are the tensor itself.
Tensor as_factors(const Tensor& values, Precision precision);

/// result[c] = alpha op(a[c]) op(b[c]) + beta result[c] for c in 0..count-1. One product per
/// client, by BLAS or, for small batches, by own kernels: what a client gets does not depend on the
/// others. `type` is float32 or float64 and that of all three, which lie all in host memory or all on
/// the device. With beta = 0 the old contents of result are
/// not read. On a device a library chooses a product's kernel by the whole call, and with it the
/// order of sums: another number of clients, other bits. Reproducible products are taken by an own
/// kernel, in the order of their inner index.
void batched_product(at::ScalarType type, std::int64_t count, double alpha, const MatrixStack& a,
                     Transpose transpose_a, const MatrixStack& b, Transpose transpose_b,
                     double beta, const MatrixStack& result, const Arithmetic& arithmetic = {});

/// result[c] -= lr (op(a[c]) b[c] + mu (result[c] - centre[c])), to the bits of penalised_step_ on
/// the product. Returns false, and does nothing, where no own kernel on the host takes it.
bool pulled_product_(at::ScalarType type, std::int64_t count, double lr, double mu,
                     const MatrixStack& a, Transpose transpose_a, const MatrixStack& b,
                     const MatrixStack& centre, const MatrixStack& result,
                     const Arithmetic& arithmetic = {});

}  // namespace fedhpc
