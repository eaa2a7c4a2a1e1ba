#include "fedhpc/math/distribution_distance.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "fedhpc/core/rng.hpp"

namespace fedhpc {

namespace {

/// n samples of F normals around `centre`.
Tensor normals(std::uint64_t client, std::int64_t n, std::int64_t features, double centre = 0) {
  Draws draws({.seed = 21, .purpose = Purpose::Init, .client = client});
  Tensor x = at::empty({n, features}, at::kDouble);
  auto* value = x.data_ptr<double>();
  for (std::int64_t i = 0; i < n * features; ++i) value[i] = centre + draws.normal();
  return x;
}

double entry(const Tensor& x, std::int64_t i, std::int64_t j) {
  return x.to(at::kDouble).contiguous().const_data_ptr<double>()[i * x.size(1) + j];
}

double squared_distance(const Tensor& x, std::int64_t i, const Tensor& y, std::int64_t j) {
  const Tensor a = x[i].to(at::kDouble).contiguous();
  const Tensor b = y[j].to(at::kDouble).contiguous();
  double sum = 0;
  for (std::int64_t f = 0; f < a.size(0); ++f) {
    const double difference = a.const_data_ptr<double>()[f] - b.const_data_ptr<double>()[f];
    sum += difference * difference;
  }
  return sum;
}

/// The definition of kernel_mean.
double plain_kernel_mean(const Tensor& x, const Tensor& y, double h) {
  double sum = 0;
  for (std::int64_t i = 0; i < x.size(0); ++i) {
    for (std::int64_t j = 0; j < y.size(0); ++j) {
      sum += std::exp(-squared_distance(x, i, y, j) / (2 * h * h));
    }
  }
  return sum / static_cast<double>(x.size(0) * y.size(0));
}

double squared_mmd(const Tensor& x, const Tensor& y, double h) {
  return kernel_mean(x, x, h) + kernel_mean(y, y, h) - 2 * kernel_mean(x, y, h);
}

double squared_norm(const Tensor& x) { return x.square().sum().item<double>(); }

double largest_difference(const Tensor& a, const Tensor& b) {
  return (a - b).abs().max().item<double>();
}

Tensor rotation(std::int64_t features) {
  return std::get<0>(at::linalg_qr(normals(99, features, features)));
}

bool all_nan(const Tensor& x) { return x.isnan().all().item<bool>(); }

TEST(MedianBandwidth, IsTheMedianOfTheDistances) {
  const Tensor x = normals(1, 5, 3);  // ten pairs: the mean of the two in the middle
  std::vector<double> distances;
  for (std::int64_t i = 0; i < 5; ++i) {
    for (std::int64_t j = 0; j < i; ++j) {
      distances.push_back(std::sqrt(squared_distance(x, i, x, j)));
    }
  }
  std::sort(distances.begin(), distances.end());
  EXPECT_NEAR(median_bandwidth(x), (distances[4] + distances[5]) / 2, 1e-14);
  EXPECT_NEAR(median_bandwidth(x * 3 + 1000), 3 * median_bandwidth(x), 1e-10);
  EXPECT_EQ(median_bandwidth(x.to(at::kFloat)), median_bandwidth(x.to(at::kFloat).to(at::kDouble)));
}

TEST(MedianBandwidth, IsOneWithoutDistances) {
  EXPECT_EQ(median_bandwidth(at::empty({0, 4}, at::kDouble)), 1);
  EXPECT_EQ(median_bandwidth(normals(1, 1, 4)), 1);
  EXPECT_EQ(median_bandwidth(at::full({6, 4}, 0.1, at::kDouble)), 1);
  Tensor x = normals(1, 3, 4);
  const double without = median_bandwidth(x.narrow(0, 0, 2));
  x[2].fill_(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(median_bandwidth(x), without) << "a sample that is no number has no distances";
}

TEST(KernelMean, EqualsTheDoubleLoop) {
  // Around the sizes of tiles, 64 and 512.
  for (const auto& [n, m, features] : std::vector<std::array<std::int64_t, 3>>{
           {1, 1, 1}, {3, 7, 2}, {64, 65, 5}, {130, 40, 70}, {70, 530, 3}}) {
    const Tensor x = normals(1, n, features);
    const Tensor y = normals(2, m, features, 0.5);
    const double h = std::sqrt(static_cast<double>(features));
    const double expected = plain_kernel_mean(x, y, h);
    EXPECT_NEAR(kernel_mean(x, y, h), expected, 1e-13 * expected);
    const Tensor single = x.to(at::kFloat);
    EXPECT_EQ(kernel_mean(single, y, h), kernel_mean(single.to(at::kDouble), y, h));
  }
}

TEST(KernelMean, IsSymmetricToTheBit) {
  for (const auto& [n, m] : {std::pair{37, 150}, std::pair{90, 90}, std::pair{600, 601}}) {
    const Tensor x = normals(3, n, 33);
    const Tensor y = normals(4, m, 33, 1);
    EXPECT_EQ(kernel_mean(x, y, 4.7), kernel_mean(y, x, 4.7));
  }
}

TEST(KernelMean, DoesNotDependOnWhereTheSamplesLie) {
  const Tensor x = normals(5, 75, 19);
  const Tensor y = normals(6, 81, 19);
  const double expected = kernel_mean(x, y, 3);
  Tensor wide = at::zeros({80, 24}, at::kDouble);
  const Tensor view = wide.narrow(0, 3, 75).narrow(1, 1, 19);
  view.copy_(x);
  EXPECT_EQ(kernel_mean(view, y, 3), expected);
  EXPECT_EQ(kernel_mean(x.t().contiguous().t(), y, 3), expected);
}

TEST(KernelMean, IsExactNearAndFar) {
  const Tensor x = normals(7, 20, 6);
  EXPECT_NEAR(kernel_mean(x + 1e6, x + 1e6, 2), plain_kernel_mean(x, x, 2), 1e-9)
      << "nothing cancels far from the origin";
  EXPECT_NEAR(kernel_mean(x, x, 1e9), 1, 1e-15);
  EXPECT_NEAR(kernel_mean(x, x, 1e-9), 1.0 / 20, 1e-15) << "a sample is near itself alone";
  EXPECT_EQ(kernel_mean(x, x + 1e3, 1), 0);
}

TEST(KernelMean, OfNothingOrNoNumberIsNaN) {
  Tensor x = normals(8, 70, 3);
  EXPECT_TRUE(std::isnan(kernel_mean(x, at::empty({0, 3}, at::kDouble), 1)));
  EXPECT_TRUE(std::isnan(kernel_mean(at::empty({0, 3}, at::kDouble), x, 1)));
  const Tensor y = x.clone();
  y[69][2] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(kernel_mean(x, y, 1)));
  EXPECT_TRUE(std::isnan(kernel_mean(y, x, 1)));
  EXPECT_THROW(kernel_mean(x, x, 0), std::logic_error);
  EXPECT_THROW(kernel_mean(x, x.narrow(1, 0, 2), 1), std::logic_error);
}

TEST(KernelMean, GivesADiscrepancyThatTellsDistributionsApart) {
  const Tensor x = normals(9, 200, 4);
  EXPECT_NEAR(squared_mmd(x, x.flip(0), 2), 0, 1e-14) << "the order of samples is nothing";
  const double same = squared_mmd(x, normals(10, 200, 4), 2);
  const double shifted = squared_mmd(x, normals(10, 200, 4, 0.5), 2);
  const double wider = squared_mmd(x, normals(10, 200, 4) * 2, 2);
  EXPECT_GT(same, 0);
  EXPECT_GT(shifted, 5 * same);
  EXPECT_GT(wider, 5 * same) << "not only means count";
}

TEST(FourierFeatures, FollowTheDefinition) {
  constexpr std::int64_t kFeatures = 5;
  constexpr double kBandwidth = 1.7;
  for (const std::int64_t n : {1, 67}) {
    const Tensor x = normals(11, n, kFeatures);
    const Tensor mean = FourierFeatures(kFeatures, 6, kBandwidth, 8).mean_of(x);
    ASSERT_EQ(mean.sizes(), (at::IntArrayRef{6}));
    for (std::int64_t k = 0; k < 3; ++k) {
      Draws draws(
          {.seed = 8, .purpose = Purpose::Features, .client = static_cast<std::uint64_t>(k)});
      std::vector<double> w(kFeatures);
      for (double& number : w) number = draws.normal() / kBandwidth;
      double cosine = 0;
      double sine = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        double angle = 0;
        for (std::int64_t f = 0; f < kFeatures; ++f) {
          angle += w[static_cast<std::size_t>(f)] * entry(x, i, f);
        }
        cosine += std::cos(angle) / static_cast<double>(n);
        sine += std::sin(angle) / static_cast<double>(n);
      }
      EXPECT_NEAR(mean[k].item<double>(), cosine / std::sqrt(3), 1e-13);
      EXPECT_NEAR(mean[3 + k].item<double>(), sine / std::sqrt(3), 1e-13);
    }
  }
}

TEST(FourierFeatures, HaveTheKernelAsExpectationAndTheStatedVariance) {
  const Tensor x = normals(12, 1, 3);
  const Tensor y = normals(13, 1, 3);
  constexpr double kBandwidth = 2;
  constexpr std::int64_t kCount = 16;
  constexpr int kTrials = 4000;
  const double kernel = plain_kernel_mean(x, y, kBandwidth);
  ASSERT_GT(kernel, 0.1);
  ASSERT_LT(kernel, 0.9);
  double sum = 0;
  double squares = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const FourierFeatures features(3, kCount, kBandwidth, static_cast<std::uint64_t>(trial));
    const double product = features.mean_of(x).dot(features.mean_of(y)).item<double>();
    sum += product - kernel;
    squares += (product - kernel) * (product - kernel);
    ASSERT_NEAR(squared_norm(features.mean_of(x)), 1, 1e-14);
  }
  const double variance = std::pow(1 - kernel * kernel, 2) / static_cast<double>(kCount);
  EXPECT_LT(std::abs(sum / kTrials), 4 * std::sqrt(variance / kTrials));
  EXPECT_NEAR(squares / kTrials, variance, 0.12 * variance);
}

TEST(FourierFeatures, ComeNearTheDiscrepancyWithTheRootOfTheirCount) {
  const Tensor x = normals(14, 60, 6);
  const Tensor y = normals(15, 80, 6, 0.7);
  const double exact = squared_mmd(x, y, 2.5);
  const auto error = [&](std::int64_t count) {
    constexpr int kSeeds = 40;
    double squares = 0;
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      const FourierFeatures features(6, count, 2.5, seed);
      const double difference = squared_norm(features.mean_of(x) - features.mean_of(y)) - exact;
      squares += difference * difference;
    }
    return std::sqrt(squares / kSeeds);
  };
  const double few = error(32);
  const double many = error(512);
  EXPECT_LT(few, exact);
  EXPECT_LT(many, 0.15 * exact);
  EXPECT_NEAR(few / many, 4, 1.6) << "sixteen times as many";
}

TEST(FourierFeatures, AreTheSameFrequenciesHoweverMany) {
  const Tensor x = normals(16, 9, 4);
  const Tensor few = FourierFeatures(4, 8, 1.5, 3).mean_of(x) * std::sqrt(8.0);
  const Tensor many = FourierFeatures(4, 20, 1.5, 3).mean_of(x) * std::sqrt(20.0);
  EXPECT_LT(largest_difference(few.narrow(0, 0, 4), many.narrow(0, 0, 4)), 1e-14);
  EXPECT_LT(largest_difference(few.narrow(0, 4, 4), many.narrow(0, 10, 4)), 1e-14);
  const Tensor other = FourierFeatures(4, 8, 1.5, 4).mean_of(x) * std::sqrt(8.0);
  EXPECT_GT(largest_difference(few, other), 0.01) << "another seed";
}

TEST(FourierFeatures, OfNothingAreNaNAndOddOnesRefused) {
  EXPECT_TRUE(all_nan(FourierFeatures(3, 4, 1, 0).mean_of(at::empty({0, 3}, at::kDouble))));
  EXPECT_THROW(FourierFeatures(3, 5, 1, 0), std::logic_error);
  EXPECT_THROW(FourierFeatures(3, 0, 1, 0), std::logic_error);
  EXPECT_THROW(FourierFeatures(3, 4, 0, 0), std::logic_error);
  EXPECT_THROW(FourierFeatures(3, 4, 1, 0).mean_of(normals(1, 2, 4)), std::logic_error);
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
    EXPECT_TRUE(projected(x, 1).equal(x.to(at::kDouble)));
  }
  EXPECT_THROW(GaussianProjection(300, 1).of(normals(1, 2, 299)), std::logic_error);
}

TEST(GaussianProjection, KeepsDistancesOfWideData) {
  const Tensor x = normals(26, 40, 900);
  const Tensor y = projected(x, 1);
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
  EXPECT_TRUE(projected(x, 1).equal(y));
  EXPECT_GT(largest_difference(projected(x, 2), y), 0.1) << "another seed";
}

}  // namespace

}  // namespace fedhpc
