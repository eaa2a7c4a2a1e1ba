#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fedhpc {

/// Weight and moment (weight times value) of all points before one.
struct PointSums {
  double weight = 0;
  double moment = 0;
};

/// m points on a line, their values ascending and distinct. Runs of neighbours are [first, last).
struct WeightedLine {
  WeightedLine(std::vector<double> points, std::span<const std::int64_t> weights);

  std::int64_t size() const { return static_cast<std::int64_t>(values.size()); }
  double mean(std::int64_t first, std::int64_t last) const;

  std::vector<double> values;     ///< [m]
  std::vector<PointSums> before;  ///< [m + 1], of the values as they are
};

/// The ends of clusters of neighbours: cluster q is [ends[q], ends[q + 1]), none empty.
using Ends = std::vector<std::int64_t>;

/// Returns the k clusters, 1 <= k <= m, with the least sum of squares about their means, to the
/// rounding of the sums. One cluster's is the points' sum of squares minus moment^2 / weight, so
/// the sum of these is made greatest. A few passes of O(m log m) for any k.
Ends best_intervals(const WeightedLine& line, std::int64_t k);

/// Runs Lloyd's iteration: points go to the nearest mean, the lower one of two, until none moves or
/// it was done `most` times. Where a cluster loses all its points, the one with the greatest weight
/// times squared width is split in two at its mean.
Ends lloyd(const WeightedLine& line, Ends ends, int most);

}  // namespace fedhpc
