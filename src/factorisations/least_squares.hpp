#pragma once

#include <cstdint>

#include "fedhpc/core/range.hpp"
#include "fedhpc/factorisations/factorisation.hpp"

namespace fedhpc {

/// Returns room for the residuals of weights w [C, p]. On a device they lie there as w does, since
/// libraries choose products by alignment too. Only the same alignment leaves 0 where w is what the
/// factors give.
Tensor room_for_residuals(const Tensor& w);

/// du[c] <- the gradient of scale/2 ||w[c] - expand(u[c])||^2 from the residual, for any
/// factorisation.
void residual_pullback_(Factorisation& factorisation, const Tensor& u, const Tensor& w,
                        double scale, const Tensor& du);

/// The factors [q] near `start` [q] whose weights come close to w [p] in the sense of least
/// squares, in float64 and host memory: goes `sweeps` times through `groups` of factors in which the weights are linear, and solves the normal equations of each, A^T A x =
/// A^T w, by conjugate gradients from where it is. The error never grows.
Tensor least_squares(Factorisation& factorisation, const ColumnRanges& groups, const Tensor& w,
                     const Tensor& start, std::int64_t sweeps);

}  // namespace fedhpc
