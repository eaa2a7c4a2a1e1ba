#include "math/intervals.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace fedhpc {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kMostAttempts = 200;
constexpr double kSamePrice = 1e-13;  // relative: what rounding leaves of a price

/// moment^2 / weight of the points between two places. It has the inverse quadrangle inequality:
/// once a cluster's later beginning is the better one, it stays so for every later end.
double explained(const PointSums& first, const PointSums& last) {
  const double moment = last.moment - first.moment;
  return moment * moment / (last.weight - first.weight);
}

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

/// A price at which k clusters are about the best number: what one more would save of the least sum
/// of squares, I^3 / (12 k^2) for many clusters, where I is the integral of the cube root of the
/// points' density (Panter and Dite, "Quantization distortion in pulse-count modulation with
/// nonuniform spacing of levels", Proc. IRE 1951).
double likely_price(const WeightedLine& line, std::int64_t k) {
  double integral = 0;
  for (std::int64_t i = 1; i < line.size(); ++i) {
    // Over gaps of half the weight of either neighbour.
    const double weight = (line.before[i + 1].weight - line.before[i - 1].weight) / 2;
    const double gap = line.values[i] - line.values[i - 1];
    integral += std::cbrt(weight * gap * gap);
  }
  return std::pow(integral / static_cast<double>(k), 3) / 6;
}

/// The next price to try, from one that gave too many clusters and one that gave too few: their
/// logarithms are near to a straight line.
struct Bracket {
  double low = 0;  ///< a price that gave `many`
  double high = kInfinity;
  double many = 0;
  double few = 0;

  double between(std::int64_t k) const {
    const double wanted = std::log(static_cast<double>(k));
    const double share = (std::log(many) - wanted) / (std::log(many) - std::log(few));
    // Neither end is tried once more, and a curve that bends is halved in the end.
    return low * std::pow(high / low, std::clamp(share, 0.05, 0.95));
  }
  double middle() const { return low * std::sqrt(high / low); }
};

/// k clusters out of fewer and more, both best at one price: those of `more` up to a cluster that
/// lies inside one of `fewer`, and of `fewer` from there. They are best as well (Aggarwal, Schieber
/// and Tokuyama, "Finding a minimum-weight k-link path in graphs with the concave Monge property",
/// 1994, lemma 6).
Ends spliced(const Ends& fewer, const Ends& more, std::int64_t k) {
  const auto lead = static_cast<std::size_t>(k) - (fewer.size() - 1);
  std::size_t i = 0;
  while (!(fewer[i] <= more[i + lead] && more[i + lead + 1] <= fewer[i + 1])) ++i;
  Ends ends(more.begin(), more.begin() + static_cast<std::ptrdiff_t>(i + lead + 1));
  ends.insert(ends.end(), fewer.begin() + static_cast<std::ptrdiff_t>(i + 1), fewer.end());
  return ends;
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

Ends best_intervals(const WeightedLine& line, std::int64_t k) {
  Ends fewer{0, line.size()};
  if (k == 1) return fewer;
  Ends more(static_cast<std::size_t>(line.size() + 1));
  std::iota(more.begin(), more.end(), 0);
  if (k == line.size()) return more;
  // The greatest sums are concave in the number of clusters: at a price between two differences of
  // them the best number is k, and its clusters are the best k. Where differences are equal, no
  // price gives k alone, but two numbers around it.
  Bracket bracket;
  double price = std::max(likely_price(line, k), std::numeric_limits<double>::min());
  for (int attempt = 0; attempt < kMostAttempts && price > bracket.low && price < bracket.high;
       ++attempt) {
    Ends ends = PricedPath(line.before, price).ends();
    const auto count = static_cast<std::int64_t>(ends.size()) - 1;
    if (count == k) return ends;
    (count > k ? bracket.low : bracket.high) = price;
    (count > k ? bracket.many : bracket.few) = static_cast<double>(count);
    (count > k ? more : fewer) = std::move(ends);
    if (bracket.low > 0 && bracket.high < kInfinity) {
      if (bracket.high / bracket.low < 1 + kSamePrice) break;
      price = attempt % 3 == 2 ? bracket.middle() : bracket.between(k);
    } else {
      // What a cluster saves falls as the cube of their number.
      const double ratio = std::pow(static_cast<double>(count) / static_cast<double>(k), 3);
      const double step = 1 + 0.01 * std::exp2(attempt);
      price *= count > k ? std::max(ratio, step) : std::min(ratio, 1 / step);
    }
  }
  return spliced(fewer, more, k);
}

}  // namespace fedhpc
