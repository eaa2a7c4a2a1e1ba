#include "fedhpc/math/kmeans.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>

#include <gtest/gtest.h>

#include "fedhpc/core/rng.hpp"

namespace fedhpc {
namespace {

template <typename T>
Clusters<T> clusters_of(const std::vector<T>& values, std::int64_t k) {
  return kmeans(std::span<const T>(values), k);
}

Draws draws_of(std::uint64_t test) {
  return Draws({.seed = 2, .purpose = Purpose::Codec, .round = test});
}

std::vector<double> normal_values(std::int64_t n, Draws& draws) {
  std::vector<double> values(static_cast<std::size_t>(n));
  for (double& value : values) value = draws.normal();
  return values;
}

/// Sum of squares of sorted values [first, last) about their mean.
double about_mean(const std::vector<double>& sorted, std::size_t first, std::size_t last) {
  double mean = 0;
  for (std::size_t i = first; i < last; ++i) mean += sorted[i] / static_cast<double>(last - first);
  double sum = 0;
  for (std::size_t i = first; i < last; ++i) sum += (sorted[i] - mean) * (sorted[i] - mean);
  return sum;
}

/// The least distortion of values from `first` on in at most k clusters, over all ways to split.
double least(const std::vector<double>& sorted, std::size_t first, std::int64_t k) {
  if (k == 1 || first == sorted.size()) return about_mean(sorted, first, sorted.size());
  double best = about_mean(sorted, first, sorted.size());
  for (std::size_t last = first + 1; last < sorted.size(); ++last) {
    best = std::min(best, about_mean(sorted, first, last) + least(sorted, last, k - 1));
  }
  return best;
}

/// All that holds of any result, by the definitions.
template <typename T>
void expect_clusters(const std::vector<T>& values, std::int64_t k) {
  const Clusters<T> clusters = clusters_of(values, k);
  const std::vector<T>& centres = clusters.centres;
  ASSERT_LE(static_cast<std::int64_t>(centres.size()), k);
  ASSERT_EQ(clusters.assignment.size(), values.size());
  std::vector<std::int64_t> counts(centres.size(), 0);
  double distortion = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto a = static_cast<std::size_t>(clusters.assignment[i]);
    const double off = std::abs(static_cast<double>(values[i]) - static_cast<double>(centres[a]));
    distortion += off * off;
    ++counts[a];
    for (std::size_t q = 0; q < centres.size(); ++q) {
      const double other =
          std::abs(static_cast<double>(values[i]) - static_cast<double>(centres[q]));
      ASSERT_GE(other, off * (1 - 1e-6) - 1e-30) << values[i] << " is nearer to " << centres[q];
    }
  }
  EXPECT_EQ(clusters.counts, counts);
  EXPECT_TRUE(std::find(counts.begin(), counts.end(), 0) == counts.end());
  EXPECT_TRUE(std::is_sorted(centres.begin(), centres.end(), std::less_equal<T>()));
  EXPECT_NEAR(clusters.distortion, distortion, 1e-9 * distortion);
}

TEST(KMeansOfNumbers, FewAreSplitAsAllWaysToSplitShow) {
  Draws draws = draws_of(1);
  for (int repeat = 0; repeat < 300; ++repeat) {
    const std::int64_t n = 1 + draws.below(10);
    std::vector<double> values = normal_values(n, draws);
    // A third of the rows has values more than once, another outliers.
    for (double& value : values) {
      if (repeat % 3 == 1) value = std::round(2 * value) + 0.0;  // no minus zero
      if (repeat % 3 == 2) value = std::exp(4 * value);
    }
    std::vector<double> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    for (std::int64_t k = 1; k <= 4; ++k) {
      const double best = least(sorted, 0, k);
      EXPECT_NEAR(clusters_of(values, k).distortion, best,
                  1e-12 * (about_mean(sorted, 0, sorted.size()) + 1e-300))
          << n << ", " << k;
      std::vector<double> distinct = sorted;
      distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
      EXPECT_EQ(clusters_of(values, k).centres.size(),
                std::min<std::size_t>(static_cast<std::size_t>(k), distinct.size()));
    }
  }
}

TEST(KMeansOfNumbers, CentresAssignmentAndDistortionBelongTogether) {
  Draws draws = draws_of(2);
  for (const std::int64_t n : {1, 2, 17, 300, 5000}) {
    for (const std::int64_t k : {1, 2, 7, 16, 17, 100}) {
      const std::vector<double> values = normal_values(n, draws);
      expect_clusters(values, k);
      expect_clusters(std::vector<float>(values.begin(), values.end()), k);
    }
  }
}

TEST(KMeansOfNumbers, MoreClustersNeverMakeItWorse) {
  Draws draws = draws_of(4);
  const std::vector<double> values = normal_values(20000, draws);
  double last = std::numeric_limits<double>::infinity();
  for (std::int64_t k = 1; k <= 80; ++k) {
    const double distortion = clusters_of(values, k).distortion;
    EXPECT_LT(distortion, last) << k;
    last = distortion;
  }
  for (const std::int64_t k : {128, 512, 4096, 19000}) {
    const double distortion = clusters_of(values, k).distortion;
    EXPECT_LT(distortion, 0.5 * last) << k;
    last = distortion;
  }
}

TEST(KMeansOfNumbers, WellSeparatedClustersAreFoundEitherWay) {
  Draws draws = draws_of(6);
  for (const std::int64_t k : {2, 16, 17, 40}) {
    std::vector<double> values;
    std::vector<std::int32_t> expected;
    for (int i = 0; i < 3000; ++i) {
      const std::int64_t cluster = draws.below(k);
      values.push_back(static_cast<double>(cluster) + 1e-3 * draws.normal());
      expected.push_back(static_cast<std::int32_t>(cluster));
    }
    EXPECT_EQ(clusters_of(values, k).assignment, expected) << k;
  }
}

TEST(KMeansOfNumbers, TiesGoToTheLowerCentre) {
  // 2 is as near to 1 as to 3, and 0 1 | 2 3 as good as it gets.
  EXPECT_EQ(clusters_of<double>({3, 2, 1, 0}, 2).assignment,
            (std::vector<std::int32_t>{1, 1, 0, 0}));
  const Clusters<double> three = clusters_of<double>({0, 1, 2}, 2);
  EXPECT_EQ(three.centres, (std::vector<double>{0, 1.5}));
  EXPECT_EQ(three.assignment, (std::vector<std::int32_t>{0, 1, 1}));
  EXPECT_EQ(three.distortion, 0.5);
}

template <typename T>
void expect_own_centres() {
  using Limits = std::numeric_limits<T>;
  const std::vector<T> ascending{-Limits::quiet_NaN(),
                                 -Limits::infinity(),
                                 Limits::lowest(),
                                 T{-1},
                                 -Limits::denorm_min(),
                                 -T{0},
                                 T{0},
                                 Limits::denorm_min(),
                                 Limits::max(),
                                 Limits::infinity(),
                                 Limits::quiet_NaN()};
  std::vector<T> values = ascending;
  values.insert(values.end(), ascending.rbegin(), ascending.rend());
  for (const std::int64_t k : {11, 16, 1000}) {
    const Clusters<T> clusters = clusters_of(values, k);
    ASSERT_EQ(clusters.centres.size(), ascending.size());
    EXPECT_EQ(std::memcmp(clusters.centres.data(), ascending.data(), ascending.size() * sizeof(T)),
              0);
    EXPECT_EQ(clusters.counts, std::vector<std::int64_t>(11, 2));
    EXPECT_EQ(clusters.distortion, 0);
    for (std::int32_t i = 0; i < 11; ++i) {
      EXPECT_EQ(clusters.assignment[i], i);
      EXPECT_EQ(clusters.assignment[21 - i], i);
    }
  }
  // One value more than centres, and not all finite: nothing is hidden.
  const Clusters<T> lost = clusters_of(values, 10);
  ASSERT_EQ(lost.centres.size(), 1U);
  EXPECT_TRUE(std::isnan(lost.centres[0]));
  EXPECT_TRUE(std::isnan(lost.distortion));
  EXPECT_EQ(lost.counts, std::vector<std::int64_t>{22});
}

TEST(KMeansOfNumbers, FewDistinctValuesAreTheirOwnCentres) {
  expect_own_centres<float>();
  expect_own_centres<double>();
}

TEST(KMeansOfNumbers, BothZerosAreOneAmongManyValues) {
  const Clusters<double> clusters = clusters_of<double>({-0.0, 5, 0.0, 9, -0.0}, 3);
  EXPECT_EQ(clusters.centres, (std::vector<double>{0, 5, 9}));
  EXPECT_FALSE(std::signbit(clusters.centres[0]));
  EXPECT_EQ(clusters.assignment, (std::vector<std::int32_t>{0, 1, 0, 2, 0}));
  // A minus zero alone becomes a zero, too.
  EXPECT_FALSE(std::signbit(clusters_of<double>({-0.0, 5, 6}, 2).centres[0]));
}

TEST(KMeansOfNumbers, NoScaleIsTooLargeOrTooSmall) {
  const std::vector<double> values{-1, -0.9, 0.1, 0.2, 0.8, 1};
  const Clusters<double> plain = clusters_of(values, 3);
  for (const double scale : {0x1p1000, 0x1p1022, 0x1p-1000, 0x1p-520}) {
    std::vector<double> scaled = values;
    for (double& value : scaled) value *= scale;
    const Clusters<double> clusters = clusters_of(scaled, 3);
    EXPECT_EQ(clusters.assignment, plain.assignment) << scale;
    for (std::size_t q = 0; q < 3; ++q) EXPECT_EQ(clusters.centres[q], plain.centres[q] * scale);
  }
  // The smallest numbers there are, and the largest beside them.
  constexpr double kTiny = std::numeric_limits<double>::denorm_min();
  EXPECT_EQ(clusters_of<double>({kTiny, 2 * kTiny, 10 * kTiny, 12 * kTiny}, 2).assignment,
            (std::vector<std::int32_t>{0, 0, 1, 1}));
  constexpr double kLargest = std::numeric_limits<double>::max();
  EXPECT_EQ(clusters_of<double>({kTiny, -kTiny, kLargest, -kLargest}, 3).assignment,
            (std::vector<std::int32_t>{1, 1, 2, 0}));
}

TEST(KMeansOfNumbers, NothingHasNoCentresAndKIsAtLeastOne) {
  EXPECT_TRUE(clusters_of<float>({}, 3).centres.empty());
  EXPECT_TRUE(clusters_of<float>({}, 3).assignment.empty());
  EXPECT_THROW(clusters_of<float>({1}, 0), std::logic_error);
}

}  // namespace
}  // namespace fedhpc
