#include <algorithm>
#include <cmath>
#include <utility>

#include "math/intervals.hpp"

namespace fedhpc {

namespace {

/// Splits clusters in two until there are k, the widest and heaviest first.
void split_(const WeightedLine& line, Ends& ends, std::size_t k) {
  const auto size = [&](std::size_t q) {
    const double width = line.values[ends[q + 1] - 1] - line.values[ends[q]];
    return (line.before[ends[q + 1]].weight - line.before[ends[q]].weight) * width * width;
  };
  while (ends.size() < k + 1) {
    std::vector<std::pair<double, std::size_t>> clusters;
    for (std::size_t q = 0; q + 1 < ends.size(); ++q) {
      if (ends[q + 1] - ends[q] > 1) clusters.emplace_back(-size(q), q);
    }
    std::sort(clusters.begin(), clusters.end());
    const std::size_t missing = std::min(k + 1 - ends.size(), clusters.size());
    for (std::size_t s = 0; s < missing; ++s) {
      const std::int64_t first = ends[clusters[s].second];
      const std::int64_t last = ends[clusters[s].second + 1];
      const auto place = std::upper_bound(line.values.begin() + first, line.values.begin() + last,
                                          line.mean(first, last)) -
                         line.values.begin();
      ends.push_back(std::clamp<std::int64_t>(place, first + 1, last - 1));
    }
    std::sort(ends.begin(), ends.end());
  }
}

}  // namespace

Ends lloyd(const WeightedLine& line, Ends ends, int most) {
  const std::size_t k = ends.size() - 1;
  for (int iteration = 0; iteration < most; ++iteration) {
    Ends next{0};
    double mean = line.mean(ends[0], ends[1]);
    for (std::size_t q = 1; q < k; ++q) {
      const double above = line.mean(ends[q], ends[q + 1]);
      const auto place = std::upper_bound(line.values.begin() + next.back(), line.values.end(),
                                          mean + (above - mean) / 2);
      next.push_back(place - line.values.begin());
      mean = above;
    }
    next.push_back(line.size());
    next.erase(std::unique(next.begin(), next.end()), next.end());
    split_(line, next, k);
    if (next == ends) break;
    ends = std::move(next);
  }
  return ends;
}

}  // namespace fedhpc
