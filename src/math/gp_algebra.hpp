#pragma once

#include <cstdint>

#include "fedhpc/core/tensor.hpp"
#include "fedhpc/math/binary_gp.hpp"
#include "fedhpc/math/products.hpp"

namespace fedhpc {

/// Views a whole float64 matrix in host memory as products take it.
inline MatrixStack matrix_of(const Tensor& matrix) {
  return {.data = matrix.data_ptr(),
          .rows = matrix.size(0),
          .columns = matrix.size(1),
          .row_stride = matrix.stride(0)};
}

/// result = alpha op(a) op(b) + beta result.
inline void product(double alpha, const Tensor& a, Transpose transpose_a, const Tensor& b,
                    Transpose transpose_b, double beta, const Tensor& result) {
  batched_product(at::kDouble, 1, alpha, matrix_of(a), transpose_a, matrix_of(b), transpose_b, beta,
                  matrix_of(result));
}

/// Returns the kernel of one list with itself, [n, n], jitter included.
Tensor kernel_of(const Tensor& units, const GpKernel& kernel);

/// The lower factor of I + S K S with S = diag(sqrt(omega)), [n, n]; writes sqrt(omega) to `roots`.
Tensor factor_of_chain(const Tensor& covariance, const double* omega, double* roots);

}  // namespace fedhpc
