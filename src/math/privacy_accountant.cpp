#include "fedhpc/math/privacy_accountant.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numbers>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

constexpr int kLargestOrder = 512;
constexpr int kFinest = 64;                // below it orders are tenths apart
constexpr double kLeastForIntegral = 0.1;  // below it there are too many steps

double log_binomial(int n, int k) {
  return std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1);
}

/// log sum exp(term(k)), k = 0, ..., last.
double log_sum(std::int64_t last, const std::function<double(std::int64_t k)>& term) {
  double largest = -std::numeric_limits<double>::infinity();
  for (std::int64_t k = 0; k <= last; ++k) largest = std::max(largest, term(k));
  double sum = 0;
  for (std::int64_t k = 0; k <= last; ++k) sum += std::exp(term(k) - largest);
  return largest + std::log(sum);
}

/// log A(a) of a whole order.
double log_moment(int a, double q, double z) {
  return log_sum(a, [&](std::int64_t k) {
    const auto chosen = static_cast<double>(k);
    // 0 log 0 = 0
    const double rest = k == a ? 0 : (a - chosen) * std::log1p(-q);
    return log_binomial(a, static_cast<int>(k)) + rest + chosen * std::log(q) +
           chosen * (chosen - 1) / (2 * z * z);
  });
}

/// log A(a) of any order above 1: the integral by the trapezoid rule, which is exact to rounding for
/// steps so far below z.
double log_integral(double a, double q, double z) {
  const double step = z / 16;
  const auto last = static_cast<std::int64_t>(std::ceil((24 * z + a) / step));
  const double log_q = std::log(q);
  const double log_rest = std::log1p(-q);
  const double sum = log_sum(last, [&](std::int64_t k) {
    const double x = static_cast<double>(k) * step - 12 * z;
    const double drawn = log_q + (2 * x - 1) / (2 * z * z);
    const double most = std::max(drawn, log_rest);
    return a * (most + std::log1p(std::exp(-std::abs(drawn - log_rest)))) - x * x / (2 * z * z);
  });
  return sum + std::log(step / (z * std::sqrt(2 * std::numbers::pi)));
}

}  // namespace

PrivacyAccountant::PrivacyAccountant(double q, double z, double delta) : delta_(delta) {
  require(q > 0 && q <= 1 && z > 0 && delta > 0 && delta < 1, "a sampled Gaussian mechanism");
  double below = 0;  // log A(1)
  for (int a = 2; a <= kLargestOrder; ++a) {
    const double here = log_moment(a, q, z);
    for (int tenths = a <= kFinest ? 1 : 10; tenths <= 10; ++tenths) {
      const double share = tenths / 10.0;
      const double order = a - 1 + share;
      const double unsampled = order * (order - 1) / (2 * z * z);  // a sample never loses more
      const bool between = tenths < 10 && q < 1 && z >= kLeastForIntegral;
      const double moment = between ? log_integral(order, q, z) : below + share * (here - below);
      orders_.push_back({order, std::min(unsampled, moment)});
    }
    below = here;
  }
}

double PrivacyAccountant::epsilon(std::int64_t releases) const {
  if (releases == 0) return 0;
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [a, moment] : orders_) {
    least = std::min(least, static_cast<double>(releases) * moment / (a - 1) + std::log1p(-1 / a) -
                                (std::log(delta_) + std::log(a)) / (a - 1));
  }
  return std::max(least, 0.0);
}

}  // namespace fedhpc
