#include "fedhpc/math/polya_gamma.hpp"

#include <cmath>
#include <limits>
#include <numbers>

namespace fedhpc {

namespace {

constexpr double kPi = std::numbers::pi;
// Where the proposal changes from an inverse Gaussian to an exponential: the best place for both.
constexpr double kTurn = 0.64;

double exponential(Draws& draws) { return -std::log1p(-draws.uniform()); }

double log_normal_below(double x) { return std::log(0.5 * std::erfc(-x / std::numbers::sqrt2)); }

/// The n-th term of the alternating series of the density at x, tilted by nothing.
double term(int n, double x) {
  const double half = n + 0.5;
  if (x > kTurn) return kPi * half * std::exp(-half * half * kPi * kPi * x / 2);
  return std::pow(2 / (kPi * x), 1.5) * kPi * half * std::exp(-2 * half * half / x);
}

/// The share of proposals beyond kTurn; `rate` is that of the exponential.
double share_beyond(double z, double rate) {
  const double root = std::sqrt(1 / kTurn);
  const double base = std::log(rate) + rate * kTurn;
  const double below = std::exp(base - z + log_normal_below(root * (kTurn * z - 1))) +
                       std::exp(base + z + log_normal_below(-root * (kTurn * z + 1)));
  return 1 / (1 + 4 / kPi * below);
}

/// An inverse Gaussian with mean 1/z and shape 1, given that it is below kTurn.
double inverse_gaussian_below(double z, Draws& draws) {
  if (z * kTurn < 1) {  // its mean lies beyond: by way of an inverse chi square
    for (;;) {
      double first = exponential(draws);
      double second = exponential(draws);
      while (first * first > 2 * second / kTurn) {
        first = exponential(draws);
        second = exponential(draws);
      }
      const double x = kTurn / ((1 + kTurn * first) * (1 + kTurn * first));
      if (draws.uniform() <= std::exp(-z * z * x / 2)) return x;
    }
  }
  const double mean = 1 / z;
  for (;;) {
    const double normal = draws.normal();
    const double scaled = mean * normal * normal;
    double x = mean + mean / 2 * (scaled - std::sqrt(4 * scaled + scaled * scaled));
    if (draws.uniform() > mean / (mean + x)) x = mean * mean / x;
    if (x <= kTurn) return x;
  }
}

/// Whether a proposal is taken: a uniform number below the density's share of its first term, which
/// partial sums enclose ever more closely.
bool is_taken(double x, Draws& draws) {
  double sum = term(0, x);
  const double level = draws.uniform() * sum;
  for (int n = 1;; ++n) {
    if (n % 2 == 1) {
      sum -= term(n, x);
      if (level <= sum) return true;
    } else {
      sum += term(n, x);
      if (level > sum) return false;
    }
  }
}

}  // namespace

double polya_gamma(double z, Draws& draws) {
  if (!std::isfinite(z)) return std::numeric_limits<double>::quiet_NaN();
  const double tilt = std::abs(z) / 2;
  const double rate = kPi * kPi / 8 + tilt * tilt / 2;
  const double beyond = share_beyond(tilt, rate);
  for (;;) {
    const double x = draws.uniform() < beyond ? kTurn + exponential(draws) / rate
                                              : inverse_gaussian_below(tilt, draws);
    if (is_taken(x, draws)) return x / 4;
  }
}

}  // namespace fedhpc
