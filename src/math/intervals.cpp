#include "math/intervals.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace fedhpc {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// moment^2 / weight of the points between two places. It has the inverse quadrangle inequality:
/// once a cluster's later beginning is the better one, it stays so for every later end.
double explained(const PointSums& first, const PointSums& last) {
  const double moment = last.moment - first.moment;
  return moment * moment / (last.weight - first.weight);
}

/// best[i] = max_j of best before + explained(j, i), layer by layer: layer r has r clusters.
class Layers {
 public:
  Layers(std::span<const PointSums> before, std::int64_t k)
      : before_(before), k_(k), best_(before.size()), next_(before.size()) {}

  void run() {
    const std::int64_t m = size();
    for (std::int64_t i = 1; i <= m; ++i) best_[i] = explained(before_[0], before_[i]);
    totals_.assign(1, best_[m]);
    for (std::int64_t r = 2; r <= k_; ++r) {
      std::vector<std::int32_t>& from = from_.emplace_back(before_.size());
      // Only the last point is asked for in the last layer.
      rows(from, r == k_ ? m : r, m, r - 1, m - 1);
      std::swap(best_, next_);
      totals_.push_back(best_[m]);
    }
  }

  /// The greatest sum with r clusters.
  double total(std::int64_t r) const { return totals_[r - 1]; }

  Ends ends() const {
    Ends ends(static_cast<std::size_t>(k_ + 1), 0);
    ends[k_] = size();
    for (std::int64_t r = k_; r >= 2; --r) ends[r - 1] = from_[r - 2][ends[r]];
    return ends;
  }

 private:
  std::int64_t size() const { return static_cast<std::int64_t>(before_.size()) - 1; }

  /// Rows first to last, whose last clusters begin between `low` and `high`: they begin in the
  /// order of the rows.
  void rows(std::vector<std::int32_t>& from, std::int64_t first, std::int64_t last,
            std::int64_t low, std::int64_t high) {
    if (first > last) return;
    const std::int64_t row = first + (last - first) / 2;
    double most = -kInfinity;
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
  std::vector<double> totals_;
};

/// The clusters of any number with the greatest sum minus `price` for each: a shortest path with
/// the quadrangle inequality, of which a queue keeps the beginnings that will be best and from
/// where (Galil and Park, "Dynamic programming with convexity, concavity and sparsity", 1992).
class PricedPath {
 public:
  PricedPath(std::span<const PointSums> before, double price)
      : before_(before), price_(price), best_(before.size()), from_(before.size()) {}

  Ends ends() {
    const auto m = static_cast<std::int64_t>(before_.size()) - 1;
    queue_.assign(1, {0, 1});
    std::size_t front = 0;
    for (std::int64_t i = 1; i <= m; ++i) {
      while (front + 1 < queue_.size() && queue_[front + 1].since <= i) ++front;
      best_[i] = value(queue_[front].begin, i) - price_;
      from_[i] = queue_[front].begin;
      if (i < m) offer(i, front, m);
    }
    Ends ends{m};
    while (ends.back() > 0) ends.push_back(from_[ends.back()]);
    std::reverse(ends.begin(), ends.end());
    return ends;
  }

 private:
  struct Candidate {
    std::int64_t begin;
    std::int64_t since;  ///< the first end for which it is best
  };

  double value(std::int64_t begin, std::int64_t end) const {
    return best_[begin] + explained(before_[begin], before_[end]);
  }
  bool beats(std::int64_t begin, std::int64_t other, std::int64_t end) const {
    return value(begin, end) > value(other, end);
  }

  void offer(std::int64_t begin, std::size_t front, std::int64_t m) {
    std::int64_t won = m + 1;  // the first end for which it is known to be best
    while (queue_.size() > front + 1 && queue_.back().since > begin &&
           beats(begin, queue_.back().begin, queue_.back().since)) {
      won = queue_.back().since;
      queue_.pop_back();
    }
    // From where it beats the last one left is most often near to where that one came in.
    const std::int64_t other = queue_.back().begin;
    std::int64_t lost = std::max(queue_.back().since, begin);
    for (std::int64_t step = 1; lost + step < won; step *= 2) {
      if (beats(begin, other, lost + step)) {
        won = lost + step;
        break;
      }
      lost += step;
    }
    while (won - lost > 1) {
      const std::int64_t middle = lost + (won - lost) / 2;
      (beats(begin, other, middle) ? won : lost) = middle;
    }
    if (won <= m) queue_.push_back({begin, won});
  }

  std::span<const PointSums> before_;
  double price_;
  std::vector<double> best_;
  std::vector<std::int64_t> from_;
  std::vector<Candidate> queue_;
};

constexpr std::int64_t kSteps = 2048;

/// Some of the m + 1 places between points: all at both ends, where single points may be clusters;
/// elsewhere evenly many points, and evenly much of the line, apart.
std::vector<std::int64_t> coarse_places(const WeightedLine& line) {
  const std::int64_t m = line.size();
  std::vector<std::int64_t> places;
  for (std::int64_t t = 0; t <= kSteps; ++t) places.push_back(t * m / kSteps);
  for (std::int64_t t = 1; t <= kSteps / 8; ++t) places.insert(places.end(), {t, m - t});
  const double low = line.values.front();
  const double step = (line.values.back() - low) / static_cast<double>(kSteps);
  for (std::int64_t t = 1; t < kSteps; ++t) {
    places.push_back(std::lower_bound(line.values.begin(), line.values.end(),
                                      low + static_cast<double>(t) * step) -
                     line.values.begin());
  }
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  return places;
}

/// A price at which k clusters are likely the best number: between what the last one and one more
/// add where clusters end at coarse places.
double likely_price(const WeightedLine& line, std::int64_t k) {
  std::vector<PointSums> before;
  for (const std::int64_t place : coarse_places(line)) before.push_back(line.before[place]);
  Layers layers(before, k + 1);
  layers.run();
  return (layers.total(k + 1) - layers.total(k - 1)) / 2;
}

}  // namespace

WeightedLine::WeightedLine(std::vector<double> points, std::span<const std::int64_t> weights)
    : values(std::move(points)), before(values.size() + 1) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto weight = static_cast<double>(weights[i]);
    before[i + 1] = {before[i].weight + weight, before[i].moment + weight * values[i]};
  }
}

double WeightedLine::mean(std::int64_t first, std::int64_t last) const {
  return (before[last].moment - before[first].moment) /
         (before[last].weight - before[first].weight);
}

Ends best_intervals_by_layers(const WeightedLine& line, std::int64_t k) {
  Layers layers(line.before, k);
  layers.run();
  return layers.ends();
}

Ends best_intervals(const WeightedLine& line, std::int64_t k) {
  if (k == 1) return {0, line.size()};
  if (k == 2 || line.size() <= 2 * kSteps) return best_intervals_by_layers(line, k);
  // The greatest sums are concave in the number of clusters (Aggarwal, Schieber and Tokuyama,
  // "Finding a minimum-weight k-link path in graphs with the concave Monge property", 1994): at a
  // price between two differences of them the best number is k, and its clusters are the best k.
  double low = 0;
  double high = kInfinity;
  double price = likely_price(line, k);
  for (int attempt = 0; attempt < 8; ++attempt) {
    Ends ends = PricedPath(line.before, price).ends();
    const auto count = static_cast<std::int64_t>(ends.size()) - 1;
    if (count == k) return ends;
    (count > k ? low : high) = price;
    // Sums of squares fall as the square of the number of clusters, their differences as the cube.
    price *= std::pow(static_cast<double>(count) / static_cast<double>(k), 3);
    if (!(price > low && price < high)) price = low + (std::min(high, 4 * low) - low) / 2;
  }
  return best_intervals_by_layers(line, k);
}

}  // namespace fedhpc
