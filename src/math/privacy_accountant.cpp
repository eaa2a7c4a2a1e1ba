#include "fedhpc/math/privacy_accountant.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

constexpr int kLargestOrder = 512;
constexpr int kFinest = 64;  // below it orders are tenths apart

double log_binomial(int n, int k) {
  return std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1);
}

/// log A(a), a sum of exponentials taken by its largest term.
double log_moment(int a, double q, double z) {
  const auto term = [&](int k) {
    // 0 log 0 = 0
    const double rest = a - k == 0 ? 0 : (a - k) * std::log1p(-q);
    return log_binomial(a, k) + rest + k * std::log(q) + (k * (k - 1.0)) / (2 * z * z);
  };
  double largest = -std::numeric_limits<double>::infinity();
  for (int k = 0; k <= a; ++k) largest = std::max(largest, term(k));
  double sum = 0;
  for (int k = 0; k <= a; ++k) sum += std::exp(term(k) - largest);
  return largest + std::log(sum);
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
      orders_.push_back({order, std::min(unsampled, below + share * (here - below))});
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
