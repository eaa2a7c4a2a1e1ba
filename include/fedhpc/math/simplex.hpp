#pragma once

#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

/// The nearest w to each row of `points` [R, n] float64 with w >= 0 and sum w = 1, [R, n] in host
/// memory. It is max(point - tau, 0) for the one tau with that sum: tau follows from the largest
/// numbers (Held, Wolfe and Crowder, "Validation of subgradient optimization", 1974). Where a single
/// number is left it is 1, to the last bit. Numbers may be -infinity, but not all of a row, and not
/// NaN. Costs R n log n comparisons.
Tensor project_to_simplex(const Tensor& points);

}  // namespace fedhpc
