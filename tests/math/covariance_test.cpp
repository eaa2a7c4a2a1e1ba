#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "fedhpc/core/rng.hpp"
#include "fedhpc/math/distribution_distance.hpp"

#include "math/samples_support.hpp"

namespace fedhpc {

namespace {

using namespace testing_support;

Tensor rotation(std::int64_t features) {
  return std::get<0>(at::linalg_qr(normals(99, features, features)));
}

TEST(Covariance, EqualsItsDefinition) {
  for (const auto& [n, features] : {std::pair{1, 3}, std::pair{12, 1}, std::pair{150, 70}}) {
    const Tensor x = normals(17, n, features, 2);
    const Tensor c = covariance(x);
    ASSERT_EQ(c.sizes(), (at::IntArrayRef{features, features}));
    EXPECT_TRUE(c.equal(c.t()));
    for (std::int64_t a = 0; a < features; a += 7) {
      for (std::int64_t b = 0; b < features; ++b) {
        double sum_a = 0, sum_b = 0, product = 0;
        for (std::int64_t i = 0; i < n; ++i) {
          sum_a += entry(x, i, a) / n;
          sum_b += entry(x, i, b) / n;
        }
        for (std::int64_t i = 0; i < n; ++i) {
          product += (entry(x, i, a) - sum_a) * (entry(x, i, b) - sum_b) / n;
        }
        ASSERT_NEAR(entry(c, a, b), product, 1e-13);
      }
    }
  }
}

TEST(Covariance, FollowsAffineMaps) {
  const Tensor x = normals(18, 200, 6).matmul(normals(19, 6, 6));
  const Tensor c = covariance(x);
  const Tensor r = rotation(6);
  EXPECT_LT(largest_difference(covariance(x.matmul(r)), r.t().matmul(c).matmul(r)), 1e-12);
  EXPECT_LT(largest_difference(covariance(x * 3 - 50), c * 9), 1e-11);
  EXPECT_LT(largest_difference(covariance(at::cat({x, x})), c), 1e-13) << "divided by n";
  EXPECT_TRUE(all_nan(covariance(at::empty({0, 6}, at::kDouble))));
}

TEST(LogSpd, IsTheInverseOfTheExponential) {
  for (const std::int64_t features : {1, 2, 9, 40}) {
    const Tensor c = covariance(normals(20, 3 * features + 5, features));
    EXPECT_LT(largest_difference(log_spd(c, 0).matrix_exp(), c), 1e-12);
    const Tensor ridged = c + at::eye(features, at::kDouble) * (0.1 * c.trace() / features);
    EXPECT_LT(largest_difference(log_spd(c, 0.1).matrix_exp(), ridged), 1e-12);
  }
}

TEST(LogSpd, OfKnownMatrices) {
  const Tensor c = covariance(normals(22, 50, 5));
  const Tensor r = rotation(5);
  const Tensor log = log_spd(c, 0);
  EXPECT_LT(largest_difference(log_spd(r.t().matmul(c).matmul(r), 0), r.t().matmul(log).matmul(r)),
            1e-12);
  EXPECT_LT(largest_difference(log_spd(c * 7, 0), log + at::eye(5, at::kDouble) * std::log(7.0)),
            1e-12);
  EXPECT_LT(largest_difference(log_spd(c.inverse(), 0), -log), 1e-12);
  EXPECT_EQ(squared_norm(log_spd(at::eye(4, at::kDouble), 0)), 0);
}

TEST(LogSpd, OfSingularMatricesIsFinite) {
  const Tensor thin = covariance(normals(23, 3, 8));  // of rank 2
  EXPECT_TRUE(log_spd(thin, 0).isfinite().all().item<bool>());
  EXPECT_LT(largest_difference(log_spd(thin, 0).matrix_exp(), thin), 1e-12);
  const Tensor nothing = log_spd(at::zeros({3, 3}, at::kDouble), 0.1);
  const double least = std::log(std::numeric_limits<double>::min());
  EXPECT_LT(largest_difference(nothing, at::eye(3, at::kDouble) * least), 1e-9);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(all_nan(log_spd(at::full({2, 2}, nan, at::kDouble), 0.1)));
  EXPECT_THROW(log_spd(thin.narrow(0, 0, 2), 0), std::logic_error);
  EXPECT_THROW(log_spd(thin, -1), std::logic_error);
}

TEST(GaussianProjection, FollowsTheDefinition) {
  const Tensor x = normals(24, 70, 11);
  const Tensor y = GaussianProjection(11, 5, 4).of(x);
  ASSERT_EQ(y.sizes(), (at::IntArrayRef{70, 4}));
  for (std::int64_t k = 0; k < 4; ++k) {
    Draws draws({.seed = 5,
                 .purpose = Purpose::Features,
                 .pass = 1,
                 .client = static_cast<std::uint64_t>(k)});
    std::vector<double> sums(70, 0);
    for (std::int64_t f = 0; f < 11; ++f) {
      const double a = draws.normal() / 2;
      for (std::int64_t i = 0; i < 70; ++i) {
        sums[static_cast<std::size_t>(i)] += a * entry(x, i, f);
      }
    }
    for (std::int64_t i = 0; i < 70; ++i) {
      EXPECT_NEAR(entry(y, i, k), sums[static_cast<std::size_t>(i)], 1e-13);
    }
  }
}

TEST(GaussianProjection, KeepsNarrowDataAsTheyAre) {
  for (const std::int64_t features : {3, 256}) {
    const Tensor x = normals(25, 4, features).to(at::kFloat);
    EXPECT_TRUE(GaussianProjection(features, 1).of(x).equal(x.to(at::kDouble)));
  }
  EXPECT_THROW(GaussianProjection(300, 1).of(normals(1, 2, 299)), std::logic_error);
}

TEST(GaussianProjection, KeepsDistancesOfWideData) {
  const Tensor x = normals(26, 40, 900);
  const Tensor y = GaussianProjection(900, 1).of(x);
  ASSERT_EQ(y.sizes(), (at::IntArrayRef{40, 256}));
  double sum = 0;
  double squares = 0;
  for (std::int64_t i = 0; i < 40; i += 2) {
    const double ratio = squared_distance(y, i, y, i + 1) / squared_distance(x, i, x, i + 1);
    sum += ratio / 20;
    squares += (ratio - 1) * (ratio - 1) / 20;
  }
  const double deviation = std::sqrt(2.0 / 256);
  EXPECT_NEAR(sum, 1, 4 * deviation / std::sqrt(20.0));
  EXPECT_LT(std::sqrt(squares), 2 * deviation);
  EXPECT_TRUE(GaussianProjection(900, 1).of(x).equal(y));
  EXPECT_GT(largest_difference(GaussianProjection(900, 2).of(x), y), 0.1) << "another seed";
}

}  // namespace

}  // namespace fedhpc
