#include "fedhpc/math/privacy_accountant.hpp"

#include <cmath>

#include <gtest/gtest.h>

namespace fedhpc {
namespace {

/// Values of dp_accounting 0.6.0: RdpAccountant with orders 2, 3, ..., 512.
TEST(PrivacyAccountant, IsAsTightAsAnotherAtWholeOrders) {
  const struct {
    double q, z;
    std::int64_t releases;
    double delta, epsilon;
  } cases[] = {{0.2, 1.0, 20, 1e-5, 7.56010913041899},
               {0.01, 1.1, 1000, 1e-5, 1.7252908180449444},
               {1, 5.0, 10, 1e-6, 3.1345027119221234},
               {0.1, 0.6, 100, 1e-4, 21.872597257471618}};
  for (const auto& one : cases) {
    const double epsilon = PrivacyAccountant(one.q, one.z, one.delta).epsilon(one.releases);
    // Tenths of orders give less, and no less than a tighter bound of the same numbers.
    EXPECT_LE(epsilon, one.epsilon * (1 + 1e-12));
    EXPECT_GE(epsilon, 0.998 * one.epsilon);
  }
}

/// Without sampling log A(a) = a (a - 1) / (2 z^2) for all real a.
TEST(PrivacyAccountant, IsTheGaussianMechanismWithoutSampling) {
  for (const double z : {0.2, 0.7, 2.0, 30.0}) {
    double least = 1e300;
    for (double a = 1.01; a < 500; a *= 1.001) {
      least = std::min(
          least, a / (2 * z * z) + std::log1p(-1 / a) - (std::log(1e-5) + std::log(a)) / (a - 1));
    }
    const double epsilon = PrivacyAccountant(1, z, 1e-5).epsilon(1);
    EXPECT_GE(epsilon, least * (1 - 1e-9)) << "it is a bound";
    EXPECT_LE(epsilon, least * 1.005);
  }
}

TEST(PrivacyAccountant, GrowsWithReleasesAndSamplingAndFallsWithNoise) {
  const PrivacyAccountant some(0.1, 1, 1e-5);
  EXPECT_EQ(some.epsilon(0), 0);
  EXPECT_LT(some.epsilon(1), some.epsilon(2));
  EXPECT_LT(some.epsilon(2), some.epsilon(1000));
  EXPECT_LT(some.epsilon(10), PrivacyAccountant(0.2, 1, 1e-5).epsilon(10));
  EXPECT_GT(some.epsilon(10), PrivacyAccountant(0.1, 2, 1e-5).epsilon(10));
  EXPECT_GT(some.epsilon(10), PrivacyAccountant(0.1, 1, 1e-3).epsilon(10));
}

}  // namespace
}  // namespace fedhpc
