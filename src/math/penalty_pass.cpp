#include "fedhpc/math/penalty_pass.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "math/exponential.hpp"

namespace fedhpc {

namespace {

/// The numbers in the weights' own type.
template <typename T>
struct Terms {
  explicit Terms(const PenaltyNumbers& numbers)
      : mu(static_cast<T>(numbers.mu)),
        gamma(static_cast<T>(numbers.gamma)),
        inverse_rho(static_cast<T>(1 / numbers.rho)) {}
  T mu;
  T gamma;
  T inverse_rho;
};

/// The derivative of the terms; a term of weight 0 is not looked at.
template <bool kPulls, bool kShrinks, typename T>
FEDHPC_INLINE T derivative(const Terms<T>& terms, T w, const T* c, std::int64_t i) {
  T sum = 0;
  if constexpr (kPulls) sum += terms.mu * (w - c[i]);
  if constexpr (kShrinks) sum += terms.gamma * tanh_of(w * terms.inverse_rho);
  return sum;
}

template <bool kGradients, bool kPulls, bool kShrinks, typename T>
FEDHPC_INLINE void step_loop(T* __restrict w, const T* __restrict g, const T* __restrict c,
                             std::int64_t count, T lr, const Terms<T>& terms) {
  for (std::int64_t i = 0; i < count; ++i) {
    T sum = derivative<kPulls, kShrinks>(terms, w[i], c, i);
    if constexpr (kGradients) sum += g[i];
    w[i] -= lr * sum;
  }
}

template <bool kPulls, bool kShrinks, typename T>
FEDHPC_INLINE void add_loop(T* __restrict g, const T* __restrict w, const T* __restrict c,
                            std::int64_t count, const Terms<T>& terms) {
  for (std::int64_t i = 0; i < count; ++i) g[i] += derivative<kPulls, kShrinks>(terms, w[i], c, i);
}

template <typename T>
FEDHPC_INLINE void step(T* w, const T* g, const T* c, std::int64_t count, T lr,
                        const Terms<T>& terms) {
  const bool pulls = terms.mu != 0;
  const bool shrinks = terms.gamma != 0;
  if (g != nullptr && pulls && shrinks)
    return step_loop<true, true, true>(w, g, c, count, lr, terms);
  if (g != nullptr && pulls) return step_loop<true, true, false>(w, g, c, count, lr, terms);
  if (g != nullptr && shrinks) return step_loop<true, false, true>(w, g, c, count, lr, terms);
  if (g != nullptr) return step_loop<true, false, false>(w, g, c, count, lr, terms);
  if (pulls && shrinks) return step_loop<false, true, true>(w, g, c, count, lr, terms);
  if (pulls) return step_loop<false, true, false>(w, g, c, count, lr, terms);
  if (shrinks) return step_loop<false, false, true>(w, g, c, count, lr, terms);
}

template <typename T>
FEDHPC_INLINE void add(T* g, const T* w, const T* c, std::int64_t count, const Terms<T>& terms) {
  const bool pulls = terms.mu != 0;
  const bool shrinks = terms.gamma != 0;
  if (pulls && shrinks) return add_loop<true, true>(g, w, c, count, terms);
  if (pulls) return add_loop<true, false>(g, w, c, count, terms);
  if (shrinks) return add_loop<false, true>(g, w, c, count, terms);
}

template <typename T>
FEDHPC_WIDE void wide_step(T* w, const T* g, const T* c, std::int64_t count, T lr,
                           const Terms<T>& terms) {
  step(w, g, c, count, lr, terms);
}

template <typename T>
FEDHPC_WIDE void wide_add(T* g, const T* w, const T* c, std::int64_t count, const Terms<T>& terms) {
  add(g, w, c, count, terms);
}

template <typename T>
void step_anywhere(T* w, const T* g, const T* c, std::int64_t count, double lr,
                   const PenaltyNumbers& numbers) {
  const auto run = has_wide_vectors() ? wide_step<T> : step<T>;
  run(w, g, c, count, static_cast<T>(lr), Terms<T>(numbers));
}

template <typename T>
void add_anywhere(T* g, const T* w, const T* c, std::int64_t count, const PenaltyNumbers& numbers) {
  const auto run = has_wide_vectors() ? wide_add<T> : add<T>;
  run(g, w, c, count, Terms<T>(numbers));
}

template <typename T>
double sum_of_log_cosh(const T* w, std::int64_t count, double rho) {
  constexpr double kLarge = 20;  // beyond, exp(-2x) is below rounding
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double x = std::abs(static_cast<double>(w[i])) / rho;
    const double half = std::sinh(x < kLarge ? x / 2 : 0.0);  // cosh x = 1 + 2 sinh^2(x / 2)
    sum += x < kLarge ? std::log1p(2 * half * half) : x - std::numbers::ln2;
  }
  return rho * sum;
}

}  // namespace

void penalised_step_(float* w, const float* g, const float* c, std::int64_t count, double lr,
                     const PenaltyNumbers& numbers) {
  step_anywhere(w, g, c, count, lr, numbers);
}
void penalised_step_(double* w, const double* g, const double* c, std::int64_t count, double lr,
                     const PenaltyNumbers& numbers) {
  step_anywhere(w, g, c, count, lr, numbers);
}

void add_penalty_gradient_(float* g, const float* w, const float* c, std::int64_t count,
                           const PenaltyNumbers& numbers) {
  add_anywhere(g, w, c, count, numbers);
}
void add_penalty_gradient_(double* g, const double* w, const double* c, std::int64_t count,
                           const PenaltyNumbers& numbers) {
  add_anywhere(g, w, c, count, numbers);
}

double smoothed_l1(const float* w, std::int64_t count, double rho) {
  return sum_of_log_cosh(w, count, rho);
}
double smoothed_l1(const double* w, std::int64_t count, double rho) {
  return sum_of_log_cosh(w, count, rho);
}

}  // namespace fedhpc
