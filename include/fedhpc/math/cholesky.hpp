#pragma once

#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

// Functions of float64 matrices in host memory, contiguous. Sums are taken in an order of their
// own: the same bits with any number of threads.

/// Factors a symmetric positive definite matrix [n, n] in place into a lower triangular L, L L^T.
/// Ignores what stands above the diagonal and spoils it. NaN where it is not definite.
void cholesky_(const Tensor& matrix);

/// right [n, m] <- L^-1 right.
void solve_lower_(const Tensor& factor, const Tensor& right);

/// right [n, m] <- L^-T right.
void solve_lower_transposed_(const Tensor& factor, const Tensor& right);

}  // namespace fedhpc
