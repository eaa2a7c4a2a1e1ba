#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "math/intervals.hpp"

namespace fedhpc {

/// The best intervals by dynamic programming, one layer for each number of clusters: what
/// best_intervals() is compared with. O(k m log m) and k m numbers.
class Layers {
 public:
  Layers(const WeightedLine& line, std::int64_t k)
      : before_(line.before), k_(k), best_(before_.size()), next_(before_.size()) {
    run();
  }

  Ends ends() const {
    Ends ends(static_cast<std::size_t>(k_ + 1), 0);
    ends[k_] = size();
    for (std::int64_t r = k_; r >= 2; --r) ends[r - 1] = from_[r - 2][ends[r]];
    return ends;
  }

 private:
  static double explained(const PointSums& first, const PointSums& last) {
    const double moment = last.moment - first.moment;
    return moment * moment / (last.weight - first.weight);
  }

  void run() {
    const std::int64_t m = size();
    for (std::int64_t i = 1; i <= m; ++i) best_[i] = explained(before_[0], before_[i]);
    for (std::int64_t r = 2; r <= k_; ++r) {
      std::vector<std::int32_t>& from = from_.emplace_back(before_.size());
      // Only the last point is asked for in the last layer.
      rows(from, r == k_ ? m : r, m, r - 1, m - 1);
      std::swap(best_, next_);
    }
  }

  std::int64_t size() const { return static_cast<std::int64_t>(before_.size()) - 1; }

  /// Rows first to last, whose last clusters begin between `low` and `high`: they begin in the
  /// order of the rows.
  void rows(std::vector<std::int32_t>& from, std::int64_t first, std::int64_t last,
            std::int64_t low, std::int64_t high) {
    if (first > last) return;
    const std::int64_t row = first + (last - first) / 2;
    double most = -std::numeric_limits<double>::infinity();
    std::int64_t at = low;
    for (std::int64_t j = low; j <= std::min(row - 1, high); ++j) {
      const double sum = best_[j] + explained(before_[j], before_[row]);
      if (sum > most) {
        most = sum;
        at = j;
      }
    }
    next_[row] = most;
    from[row] = static_cast<std::int32_t>(at);
    rows(from, first, row - 1, low, at);
    rows(from, row + 1, last, at, high);
  }

  std::span<const PointSums> before_;
  std::int64_t k_;
  std::vector<double> best_;
  std::vector<double> next_;
  std::vector<std::vector<std::int32_t>> from_;  // of layers 2 to k
};

}  // namespace fedhpc
