#include "fedhpc/math/polya_gamma.hpp"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace fedhpc {
namespace {

constexpr int kDraws = 100000;

Draws stream(std::uint64_t number) { return Draws({.seed = 3, .epoch = number}); }

/// The mean of a function of a draw, and how far it may be from its expectation: five deviations.
template <typename Function>
std::pair<double, double> mean_of(double z, const Function& function) {
  Draws draws = stream(static_cast<std::uint64_t>(100 * std::abs(z)));
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double value = function(polya_gamma(z, draws));
    sum += value;
    squares += value * value;
  }
  const double mean = sum / kDraws;
  return {mean, 5 * std::sqrt((squares / kDraws - mean * mean) / kDraws)};
}

class PolyaGamma : public ::testing::TestWithParam<double> {};

TEST_P(PolyaGamma, HasTheMomentsOfTheClosedForm) {
  const double z = GetParam();
  const double size = std::abs(z);
  const double expected = size == 0 ? 0.25 : std::tanh(size / 2) / (2 * size);
  const double cosh = std::cosh(size / 2);
  const double variance =
      size == 0 ? 1.0 / 24 : (std::sinh(size) - size) / (4 * size * size * size * cosh * cosh);
  const auto [mean, mean_bound] = mean_of(z, [](double x) { return x; });
  EXPECT_NEAR(mean, expected, mean_bound);
  const auto [spread, spread_bound] =
      mean_of(z, [&](double x) { return (x - expected) * (x - expected); });
  EXPECT_NEAR(spread, variance, spread_bound);
}

TEST_P(PolyaGamma, HasTheLaplaceTransformOfTheClosedForm) {
  const double z = GetParam();
  for (const double t : {0.5, 3.0, 20.0}) {
    const auto [mean, bound] = mean_of(z, [&](double x) { return std::exp(-t * x); });
    EXPECT_NEAR(mean, std::cosh(z / 2) / std::cosh(std::sqrt((z * z / 2 + t) / 2)), bound) << t;
  }
}

INSTANTIATE_TEST_SUITE_P(Tilts, PolyaGamma, ::testing::Values(0.0, 0.3, -2.0, 3.1, 3.2, 8.0, 30.0));

TEST(PolyaGammaDraws, AreFiniteFarOutAndNanOfNan) {
  Draws draws = stream(1);
  for (const double z : {60.0, 93.0, 700.0, 1e5}) {
    for (int i = 0; i < 100; ++i) EXPECT_NEAR(2 * z * polya_gamma(z, draws), 1, 6 / std::sqrt(z));
  }
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double z : {infinity, -infinity, std::nan("")}) {
    EXPECT_TRUE(std::isnan(polya_gamma(z, draws)));
  }
}

TEST(PolyaGammaDraws, AreAFunctionOfTheKeyAndEvenInZ) {
  for (const double z : {0.7, 5.0}) {
    Draws once = stream(7);
    Draws again = stream(7);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(polya_gamma(z, once), polya_gamma(-z, again));
  }
}

}  // namespace
}  // namespace fedhpc
