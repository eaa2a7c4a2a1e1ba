#pragma once

#include <cstdint>

#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

/// left right^T with the same share of every singular value on both sides.
struct BalancedProduct {
  Tensor left;   ///< [m, r]
  Tensor right;  ///< [n, r]
};

/// Returns the matrix of rank r nearest to `matrix` [m, n] in the Frobenius norm. With the singular
/// value decomposition L S R^T it is L_r sqrt(S_r) (R_r sqrt(S_r))^T. float64. Of the two signs
/// that a pair of singular vectors may have, the largest entry of the left one decides. Beyond the
/// full rank of the matrix columns are 0.
BalancedProduct truncated_svd(const Tensor& matrix, std::int64_t rank);

/// Returns exp of the entropy of the singular values' shares, -sum_i q_i ln q_i with q_i = s_i /
/// sum s. It tells how many of them count (Roy and Vetterli, "The effective rank", EUSIPCO 2007):
/// in [1, min(m, n)], 0 for a matrix of zeros.
double effective_rank(const Tensor& matrix);

}  // namespace fedhpc
