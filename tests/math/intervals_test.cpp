#include "math/intervals.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include <gtest/gtest.h>

#include "fedhpc/core/rng.hpp"

#include "math/interval_layers.hpp"

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

void expect_best(const WeightedLine& line, std::int64_t k) {
  const Ends found = best_intervals(line, k);
  ASSERT_EQ(static_cast<std::int64_t>(found.size()), k + 1);
  EXPECT_EQ(found.front(), 0);
  EXPECT_EQ(found.back(), line.size());
  EXPECT_TRUE(std::is_sorted(found.begin(), found.end(), std::less_equal<>()));
  const double best = squares(line, Layers(line, k).ends());
  EXPECT_NEAR(squares(line, found), best, 1e-9 * best + 1e-12 * squares(line, {0, line.size()}))
      << k << " of " << line.size();
}

TEST(Intervals, AreTheBestForAnyNumberOfThem) {
  for (const WeightedLine& line : lines(12000, 1)) {
    for (const std::int64_t k : {1, 2, 3, 4, 5, 9, 16, 17, 33, 64}) expect_best(line, k);
  }
  for (const WeightedLine& line : lines(1500, 2)) {
    for (const std::int64_t k : {50, 51, 200, 701, 1499, 1500}) expect_best(line, k);
  }
}

TEST(Intervals, AreTheBestOfFewPointsForEveryNumber) {
  for (std::uint64_t test = 3; test < 8; ++test) {
    for (const WeightedLine& line : lines(40, test)) {
      for (std::int64_t k = 1; k <= line.size(); ++k) expect_best(line, k);
    }
  }
}

TEST(Intervals, EqualGroupsHaveAnyNumber) {
  // Six groups alike: between 6 and 12 clusters no price for one gives the number.
  std::vector<double> values;
  for (int group = 0; group < 6; ++group) {
    for (int i = 0; i < 50; ++i) values.push_back(1000.0 * group + i);
  }
  const std::vector<std::int64_t> ones(values.size(), 1);
  const WeightedLine line(values, ones);
  for (std::int64_t k = 1; k <= 40; ++k) expect_best(line, k);
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
