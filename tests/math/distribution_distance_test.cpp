#include "fedhpc/math/distribution_distance.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "fedhpc/core/rng.hpp"
#include "fedhpc/math/similarity_graph.hpp"

#include "math/samples_support.hpp"

namespace fedhpc {

namespace {

using namespace testing_support;

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

TEST(SquaredMmd, FindsPlantedClusters) {
  // Clients k of cluster k mod 3, which differ in their mean (0, 1) or in their spread (0, 2).
  constexpr std::int64_t kClients = 12;
  std::vector<Tensor> samples;
  std::vector<std::int64_t> clusters;
  for (std::int64_t k = 0; k < kClients; ++k) {
    clusters.push_back(k % 3);
    const Tensor x = normals(static_cast<std::uint64_t>(100 + k), 60, 4, k % 3 == 1 ? 1 : 0);
    samples.push_back(k % 3 == 2 ? x * 2.5 : x);
  }
  const double h = median_bandwidth(at::cat(samples));
  const FourierFeatures features(4, 512, h, 1);
  Tensor by_kernel = at::zeros({kClients, kClients}, at::kDouble);
  Tensor by_features = at::zeros({kClients, kClients}, at::kDouble);
  for (std::int64_t i = 0; i < kClients; ++i) {
    for (std::int64_t j = 0; j < kClients; ++j) {
      const Tensor& x = samples[static_cast<std::size_t>(i)];
      const Tensor& y = samples[static_cast<std::size_t>(j)];
      by_kernel[i][j] = squared_mmd(x, y, h);
      by_features[i][j] = squared_norm(features.mean_of(x) - features.mean_of(y));
    }
  }
  for (const Tensor& distances : {by_kernel, by_features}) {
    const SimilarityGraph graph = knn_graph(distances, 3);
    EXPECT_EQ(graph.edges.size(), 3U * 6) << "each cluster of four is complete";
    for (const auto& [i, j] : graph.edges) EXPECT_EQ(clusters[i], clusters[j]);
  }
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

}  // namespace

}  // namespace fedhpc
