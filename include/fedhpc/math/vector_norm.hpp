#pragma once

#include <cstdint>

#include "fedhpc/core/notation.hpp"
#include "fedhpc/core/tensor.hpp"
#include "fedhpc/math/p_norm.hpp"

namespace fedhpc {

/// Returns ||a||_p of a vector [n] of float64.
double norm_of(const Tensor& a, VectorNorm norm);

/// Returns the vector [n] of float64 nearest to `a` with a norm's weight on it (tau >= 0):
///
///   argmin over w of tau ||w||_p + 1/2 ||w - a||^2
///     p = 1         sign(a) (|a| - tau)_+
///     p = 2         (1 - tau / ||a||_2)_+ a
///     p = infinity  a - (the point of the l1 ball of radius tau nearest to a), which is a with its
///                   entries clipped to +-clip_level(a, tau)
Tensor prox(const Tensor& a, VectorNorm norm, double tau);

/// Returns the theta >= 0 with sum_i (|a_i| - theta)_+ = tau, for float64 [n]; 0 where ||a||_1 <=
/// tau. Newton's method on the convex, piecewise linear left side ends after finitely many steps.
double clip_level(const Tensor& a, double tau);

/// One step of that method: the next theta from sum_i (|a_i| - theta)_+ and the number of |a_i|
/// above theta. From the right of the solution a step leads to its left, from there on upwards.
inline double next_clip_level(double theta, double excess, std::int64_t above, double tau) {
  if (above == 0) return 0;  // too far to the right: there is no slope
  const double next = theta + (excess - tau) / static_cast<double>(above);
  return next > 0 ? next : 0;
}

}  // namespace fedhpc
