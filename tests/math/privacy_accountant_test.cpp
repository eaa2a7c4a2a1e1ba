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
    double delta, epsilon, tenths;  // with tenths of orders by numeric integration
  } cases[] = {{0.2, 1.0, 20, 1e-5, 7.56010913041899, 7.517842827468788},
               {0.01, 1.1, 1000, 1e-5, 1.7252908180449444, 1.7117700912178861},
               {1, 5.0, 10, 1e-6, 3.1345027119221234, 3.131089774915035},
               {0.1, 0.6, 100, 1e-4, 21.872597257471618, 20.25981748792762}};
  for (const auto& one : cases) {
    const double epsilon = PrivacyAccountant(one.q, one.z, one.delta).epsilon(one.releases);
    EXPECT_LE(epsilon, one.epsilon * (1 + 1e-12));
    EXPECT_NEAR(epsilon, one.tenths, 1e-9 * one.tenths);
  }
}

/// Little noise and few clients: the best order is below 2. By numeric integration; dp_accounting
/// 0.6.0 has 79.4, 22.1 and 53.7 with orders of its own.
TEST(PrivacyAccountant, HasOrdersBelowTwo) {
  const struct {
    double q, z, epsilon;
    std::int64_t releases;
  } cases[] = {{0.01, 0.3, 79.05455778175866, 1000},
               {0.001, 0.3, 22.1130847670368, 1000},
               {0.5, 0.5, 51.028125418614586, 20}};
  for (const auto& one : cases) {
    EXPECT_NEAR(PrivacyAccountant(one.q, one.z, 1e-5).epsilon(one.releases), one.epsilon,
                1e-9 * one.epsilon);
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
