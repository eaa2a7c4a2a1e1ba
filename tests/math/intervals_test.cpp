#include "math/intervals.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include <gtest/gtest.h>

#include "fedhpc/core/rng.hpp"

namespace fedhpc {
namespace {

/// Sum of squares about the means, by its definition.
double squares(const WeightedLine& line, const Ends& ends) {
  double sum = 0;
  for (std::size_t q = 0; q + 1 < ends.size(); ++q) {
    const double mean = line.mean(ends[q], ends[q + 1]);
    for (std::int64_t i = ends[q]; i < ends[q + 1]; ++i) {
      sum +=
          (line.before[i + 1].weight - line.before[i].weight) * std::pow(line.values[i] - mean, 2);
    }
  }
  return sum;
}

/// `n` points of several kinds: normal with weights, two with long tails, and two equal groups far
/// apart, of which with an odd number of clusters either may have one more, so that no price for a
/// cluster gives the number.
std::vector<WeightedLine> lines(std::int64_t n, std::uint64_t test) {
  Draws draws({.seed = 3, .purpose = Purpose::Codec, .round = test});
  std::vector<std::vector<double>> values(4);
  std::vector<std::int64_t> weights;
  for (std::int64_t i = 0; i < n; ++i) {
    const double x = draws.normal();
    values[0].push_back(x);
    values[1].push_back(std::pow(x, 7));
    values[2].push_back(x / std::max(draws.uniform(), 1e-9));
    values[3].push_back(static_cast<double>(i < n / 2 ? i : i + 1000000));
    weights.push_back(i % 5 == 0 ? 1 + draws.below(9) : 1);
  }
  const std::vector<std::int64_t> ones(static_cast<std::size_t>(n), 1);
  std::vector<WeightedLine> lines;
  for (std::size_t kind = 0; kind < values.size(); ++kind) {
    std::sort(values[kind].begin(), values[kind].end());
    lines.emplace_back(values[kind], kind == 0 ? weights : ones);
  }
  return lines;
}

TEST(Intervals, ManyAreSplitAsLayerByLayer) {
  // More than are always split layer by layer.
  for (const WeightedLine& line : lines(12000, 1)) {
    for (const std::int64_t k : {1, 2, 3, 4, 5, 9, 16}) {
      const Ends fast = best_intervals(line, k);
      const Ends plain = best_intervals_by_layers(line, k);
      ASSERT_EQ(fast.size(), plain.size());
      EXPECT_NEAR(squares(line, fast), squares(line, plain), 1e-9 * squares(line, plain)) << k;
    }
  }
}

TEST(Intervals, LloydComesNearTheOptimum) {
  for (const std::int64_t k : {3, 8, 16, 30, 64}) {
    const std::vector<WeightedLine> all = lines(6000, 2);
    for (std::size_t kind = 0; kind < 4; ++kind) {
      const WeightedLine& line = all[kind];
      const Ends start = likely_intervals(line, k);
      ASSERT_EQ(static_cast<std::int64_t>(start.size()), k + 1);
      const double best = squares(line, best_intervals_by_layers(line, k));
      const double found = squares(line, lloyd(line, start, 300));
      EXPECT_GE(found, best * (1 - 1e-12)) << k;
      EXPECT_LE(found, (kind == 0 ? 1.1 : 1.5) * best) << k;
      EXPECT_LE(found, squares(line, lloyd(line, start, 1))) << k;
    }
  }
}

TEST(Intervals, AClusterThatLosesItsPointsIsReplaced) {
  // The points in the middle are nearer to the means beside theirs.
  const std::vector<std::int64_t> weights{1, 100, 1, 1, 100, 1};
  const WeightedLine line({0, 4, 4.1, 5.9, 6, 10}, weights);
  const Ends start{0, 2, 4, 6};
  const Ends ends = lloyd(line, start, 300);
  ASSERT_EQ(ends.size(), 4U);
  EXPECT_TRUE(std::is_sorted(ends.begin(), ends.end(), std::less_equal<>()));
  EXPECT_LT(squares(line, ends), squares(line, start));
}

}  // namespace
}  // namespace fedhpc
