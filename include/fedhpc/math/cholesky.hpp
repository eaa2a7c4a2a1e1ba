#pragma once

#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

// Of float64 matrices in host memory, contiguous. Sums are taken in an order of their own: the same
// bits with any number of threads.

/// A symmetric positive definite matrix [n, n] becomes its lower triangular factor L, L L^T; what
/// stands above the diagonal is not read, and of no use afterwards. NaN where it is not definite.
void cholesky_(const Tensor& matrix);

/// right [n, m] becomes L^-1 right.
void solve_lower_(const Tensor& factor, const Tensor& right);

/// right [n, m] becomes L^-T right.
void solve_lower_transposed_(const Tensor& factor, const Tensor& right);

}  // namespace fedhpc
