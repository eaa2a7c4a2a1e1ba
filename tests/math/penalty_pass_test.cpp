#include "fedhpc/math/penalty_pass.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace fedhpc {
namespace {

/// Magnitudes from `from` to beyond saturation, both signs, and 0: more than any vector's length.
template <typename T>
std::vector<T> weights(T from) {
  std::vector<T> all{0, std::numeric_limits<T>::max()};
  for (T x = from; x < 100; x *= static_cast<T>(1.013)) {
    all.push_back(x);
    all.push_back(-x);
  }
  return all;
}

/// The gradient of the second term alone, gamma = 1.
template <typename T>
std::vector<T> tanh_of(const std::vector<T>& w, double rho) {
  std::vector<T> gradient(w.size(), 0);
  add_penalty_gradient_(gradient.data(), w.data(), nullptr, static_cast<std::int64_t>(w.size()),
                        {.gamma = 1, .rho = rho});
  return gradient;
}

template <typename T>
void expect_tanh(double tolerance) {
  for (const double rho : {1.0, 0.25}) {
    const std::vector<T> w = weights<T>(std::numeric_limits<T>::min());
    const std::vector<T> got = tanh_of(w, rho);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double exact = std::tanh(static_cast<double>(w[i]) / rho);
      EXPECT_NEAR(static_cast<double>(got[i]), exact, tolerance * std::abs(exact)) << w[i];
    }
  }
}

TEST(PenaltyPass, TanhKeepsAllDigitsFromTheSmallestNumberToSaturation) {
  expect_tanh<float>(4e-7);
  expect_tanh<double>(8e-16);
}

TEST(PenaltyPass, StepsAddTheTermsThatAreThere) {
  const std::int64_t count = 101;  // no whole number of vectors
  std::vector<double> w(count);
  std::vector<double> g(count);
  std::vector<double> c(count);
  for (std::int64_t i = 0; i < count; ++i) {
    w[i] = std::sin(3.0 * static_cast<double>(i));
    g[i] = std::cos(5.0 * static_cast<double>(i));
    c[i] = std::sin(7.0 * static_cast<double>(i) + 1);
  }
  const double lr = 0.1;
  for (const double mu : {0.0, 3.0}) {
    for (const double gamma : {0.0, 0.5}) {
      for (const bool gradients : {false, true}) {
        const PenaltyNumbers numbers{.mu = mu, .gamma = gamma, .rho = 0.2};
        std::vector<double> stepped = w;
        penalised_step_(stepped.data(), gradients ? g.data() : nullptr, mu > 0 ? c.data() : nullptr,
                        count, lr, numbers);
        std::vector<double> added(count, 0);
        add_penalty_gradient_(added.data(), w.data(), mu > 0 ? c.data() : nullptr, count, numbers);
        for (std::int64_t i = 0; i < count; ++i) {
          const double terms = mu * (w[i] - c[i]) + gamma * std::tanh(w[i] / 0.2);
          EXPECT_NEAR(added[i], terms, 1e-14);
          EXPECT_NEAR(stepped[i], w[i] - lr * ((gradients ? g[i] : 0) + terms), 1e-14);
        }
      }
    }
  }
}

TEST(PenaltyPass, NanStaysNan) {
  std::vector<float> w(33, std::numeric_limits<float>::quiet_NaN());
  penalised_step_(w.data(), nullptr, nullptr, 33, 0.1, {.gamma = 1, .rho = 1});
  EXPECT_TRUE(std::all_of(w.begin(), w.end(), [](float x) { return std::isnan(x); }));
}

TEST(PenaltyPass, SmoothedL1IsTheIntegralOfItsGradient) {
  const double rho = 0.3;
  for (const double w : {-2.0, -0.1, 1e-3, 0.2, 5.0}) {
    const double h = 1e-5;
    const auto value = [&](double x) { return smoothed_l1(&x, 1, rho); };
    EXPECT_NEAR((value(w + h) - value(w - h)) / (2 * h), std::tanh(w / rho), 1e-9);
  }
}

TEST(PenaltyPass, SmoothedL1LiesBelowTheSumOfMagnitudes) {
  const std::vector<double> w = weights<double>(1e-12);
  const std::vector<double> finite(w.begin() + 2, w.end());
  const auto count = static_cast<std::int64_t>(finite.size());
  double magnitudes = 0;
  for (const double x : finite) magnitudes += std::abs(x);
  for (const double rho : {6e-5, 0.1, 3.0}) {
    const double gap = magnitudes - smoothed_l1(finite.data(), count, rho);
    EXPECT_GE(gap, 0);
    EXPECT_LE(gap, rho * std::log(2) * static_cast<double>(count));
  }
}

TEST(PenaltyPass, SmoothedL1NeitherOverflowsNorCancels) {
  const double large = 1e300;
  EXPECT_EQ(smoothed_l1(&large, 1, 6e-5), large);
  const double small = 1e-9;  // rho log cosh(w / rho) -> w^2 / (2 rho)
  EXPECT_NEAR(smoothed_l1(&small, 1, 1.0), small * small / 2, 1e-15 * small * small);
}

}  // namespace
}  // namespace fedhpc
