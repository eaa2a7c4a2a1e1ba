#pragma once

#include <cstdint>

namespace fedhpc {

/// The numbers of the terms mu/2 (w - c)^2 + gamma rho log cosh(w / rho) of one weight. The second
/// is the smooth stand-in for |w| of sFedHP, equation (4). It is less by at most rho log 2, and its
/// derivative is tanh(w / rho).
struct PenaltyNumbers {
  double mu = 0;
  double gamma = 0;
  double rho = 1;
};

/// w <- w - lr (g + mu (w - c) + gamma tanh(w / rho)) for `count` weights, in one pass. Without
/// gradients (g null) they are 0; c is read only where mu is above 0.
void penalised_step_(float* w, const float* g, const float* c, std::int64_t count, double lr,
                     const PenaltyNumbers& numbers);
void penalised_step_(double* w, const double* g, const double* c, std::int64_t count, double lr,
                     const PenaltyNumbers& numbers);

/// g <- g + mu (w - c) + gamma tanh(w / rho), in one pass.
void add_penalty_gradient_(float* g, const float* w, const float* c, std::int64_t count,
                           const PenaltyNumbers& numbers);
void add_penalty_gradient_(double* g, const double* w, const double* c, std::int64_t count,
                           const PenaltyNumbers& numbers);

/// Sums rho log cosh(w / rho) over `count` weights, accumulated in float64. Exact to rounding for
/// any w and rho: nothing overflows, and small weights do not cancel.
double smoothed_l1(const float* w, std::int64_t count, double rho);
double smoothed_l1(const double* w, std::int64_t count, double rho);

}  // namespace fedhpc
