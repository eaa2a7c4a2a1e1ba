#include "fedhpc/math/kmeans.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>

#include "fedhpc/core/error.hpp"

#include "math/intervals.hpp"

namespace fedhpc {

namespace {

constexpr int kMostIterations = 30;

/// Numbers as integers in their order: by value, -0 below +0, NaN beyond the infinities.
template <typename T>
struct Ordered {
  using Key = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  static constexpr Key kSign = Key{1} << (8 * sizeof(T) - 1);

  static Key key(T value) {
    const Key bits = std::bit_cast<Key>(value);
    return (bits & kSign) != 0 ? ~bits : bits | kSign;
  }
  static T value(Key key) {
    return std::bit_cast<T>((key & kSign) != 0 ? key & ~kSign : static_cast<Key>(~key));
  }
};

/// Ascending, digit by digit from the lowest.
template <typename Key>
void sort_(std::vector<Key>& keys) {
  constexpr int kDigit = 11;
  constexpr std::size_t kFew = 2048;
  if (keys.size() < kFew) return std::sort(keys.begin(), keys.end());
  std::vector<Key> other(keys.size());
  for (int shift = 0; shift < 8 * static_cast<int>(sizeof(Key)); shift += kDigit) {
    std::array<std::size_t, std::size_t{1} << kDigit> place{};
    const auto digit = [&](Key key) { return (key >> shift) & ((Key{1} << kDigit) - 1); };
    for (const Key key : keys) ++place[digit(key)];
    if (place[digit(keys.front())] == keys.size()) continue;
    std::exclusive_scan(place.begin(), place.end(), place.begin(), std::size_t{0});
    for (const Key key : keys) other[place[digit(key)]++] = key;
    keys.swap(other);
  }
}

/// Distinct values, ascending, and how often each is there.
template <typename T>
struct Distinct {
  explicit Distinct(std::span<const T> values) {
    std::vector<Key> sorted(values.size());
    std::transform(values.begin(), values.end(), sorted.begin(), Ordered<T>::key);
    sort_(sorted);
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      if (i == 0 || sorted[i] != sorted[i - 1]) {
        keys.push_back(sorted[i]);
        counts.push_back(0);
      }
      ++counts.back();
    }
  }

  std::int64_t size() const { return static_cast<std::int64_t>(keys.size()); }
  T value(std::int64_t i) const { return Ordered<T>::value(keys[i]); }

  /// Finite are both ends, therefore all.
  bool finite() const { return std::isfinite(value(0)) && std::isfinite(value(size() - 1)); }

  void join_zeros_() {
    const auto minus = std::lower_bound(keys.begin(), keys.end(), Ordered<T>::key(-T{0}));
    if (minus == keys.end() || *minus != Ordered<T>::key(-T{0})) return;
    const auto i = minus - keys.begin();
    if (i + 1 == size() || keys[i + 1] != Ordered<T>::key(T{0})) {
      keys[i] = Ordered<T>::key(T{0});
      return;
    }
    counts[i + 1] += counts[i];
    keys.erase(minus);
    counts.erase(counts.begin() + i);
  }

  using Key = typename Ordered<T>::Key;
  std::vector<Key> keys;
  std::vector<std::int64_t> counts;
};

/// A power of two for which neither squares of numbers up to `largest` times it overflow nor, for
/// what counts among them, underflow; in two factors, as it may be no number itself.
struct Scale {
  explicit Scale(double largest) {
    const int exponent = largest > 0 ? -std::ilogb(largest) : 0;
    first = std::ldexp(1.0, exponent / 2);
    second = std::ldexp(1.0, exponent - exponent / 2);
  }
  double up(double value) const { return value * first * second; }
  double down(double value) const { return value / first / second; }

  double first;
  double second;
};

/// Clusters of finite distinct values and the centre of each.
template <typename T>
class Partition {
 public:
  Partition(const Distinct<T>& distinct, std::int64_t k)
      : distinct_(distinct),
        scale_(std::max(std::abs(static_cast<double>(distinct.value(0))),
                        std::abs(static_cast<double>(distinct.value(distinct.size() - 1))))) {
    const std::int64_t m = distinct.size();
    if (m <= k) {
      ends_.resize(static_cast<std::size_t>(m + 1));
      std::iota(ends_.begin(), ends_.end(), 0);
      return;
    }
    // Sums about a value in the middle: squares of differences keep their digits, and sums of whole
    // numbers are exact.
    std::vector<double> shifted(static_cast<std::size_t>(m));
    const double middle = scaled(median());
    for (std::int64_t i = 0; i < m; ++i) shifted[i] = scaled(i) - middle;
    const WeightedLine line(std::move(shifted), distinct.counts);
    // Where clusters are so narrow that their sums of squares round to nothing, means still do not.
    ends_ = lloyd(line, best_intervals(line, k), kMostIterations);
  }

  std::int64_t size() const { return static_cast<std::int64_t>(ends_.size()) - 1; }
  std::int64_t first(std::int64_t q) const { return ends_[q]; }

  std::int64_t count(std::int64_t q) const {
    const auto begin = distinct_.counts.begin();
    return std::accumulate(begin + ends_[q], begin + ends_[q + 1], std::int64_t{0});
  }

  /// The mean. Rounding leaves it among the values, so that centres of different clusters differ.
  T centre(std::int64_t q) const {
    double sum = 0;
    for (std::int64_t i = ends_[q]; i < ends_[q + 1]; ++i) {
      sum += static_cast<double>(distinct_.counts[i]) * scaled(i);
    }
    const double mean = scale_.down(sum / static_cast<double>(count(q)));
    const T low = distinct_.value(ends_[q]);
    const T high = distinct_.value(ends_[q + 1] - 1);
    return low == high ? low
                       : static_cast<T>(
                             std::clamp(mean, static_cast<double>(low), static_cast<double>(high)));
  }

  double distortion(std::int64_t q, T centre) const {
    double sum = 0;
    for (std::int64_t i = ends_[q]; i < ends_[q + 1]; ++i) {
      const double off = static_cast<double>(distinct_.value(i)) - static_cast<double>(centre);
      sum += static_cast<double>(distinct_.counts[i]) * off * off;
    }
    return sum;
  }

 private:
  double scaled(std::int64_t i) const { return scale_.up(static_cast<double>(distinct_.value(i))); }

  /// The distinct value that has half of the numbers below it.
  std::int64_t median() const {
    const auto& counts = distinct_.counts;
    const std::int64_t half = std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) / 2;
    std::int64_t i = 0;
    for (std::int64_t below = counts[0]; below <= half; below += counts[i]) ++i;
    return i;
  }

  const Distinct<T>& distinct_;
  Scale scale_;
  Ends ends_;
};

/// The last of `firsts` [m], ascending, that is not above the key: its halves without branches.
template <typename Key>
std::int32_t cluster_of(std::span<const Key> firsts, Key key) {
  std::size_t below = 0;
  for (std::size_t left = firsts.size(); left > 1;) {
    const std::size_t half = left / 2;
    below += firsts[below + half] <= key ? half : 0;
    left -= half;
  }
  return static_cast<std::int32_t>(below);
}

template <typename T>
Clusters<T> clusters_of(std::span<const T> values, std::int64_t k) {
  require(k >= 1, "k-means has at least one cluster");
  require(values.size() < std::size_t{1} << 31, "k-means has fewer than 2^31 values");
  Clusters<T> clusters;
  if (values.empty()) return clusters;
  Distinct<T> distinct(values);
  std::vector<typename Ordered<T>::Key> firsts;  // the least key of each cluster
  if (distinct.size() <= k) {
    for (std::int64_t i = 0; i < distinct.size(); ++i)
      clusters.centres.push_back(distinct.value(i));
    firsts = distinct.keys;
    clusters.counts = distinct.counts;
  } else if (!distinct.finite()) {
    clusters.centres = {std::numeric_limits<T>::quiet_NaN()};
    firsts = {0};
    clusters.counts = {static_cast<std::int64_t>(values.size())};
    clusters.distortion = std::numeric_limits<double>::quiet_NaN();
  } else {
    distinct.join_zeros_();
    const Partition<T> partition(distinct, k);
    for (std::int64_t q = 0; q < partition.size(); ++q) {
      clusters.centres.push_back(partition.centre(q));
      clusters.counts.push_back(partition.count(q));
      clusters.distortion += partition.distortion(q, clusters.centres.back());
      const auto first = distinct.keys[partition.first(q)];
      firsts.push_back(first == Ordered<T>::key(T{0}) ? Ordered<T>::key(-T{0}) : first);
    }
  }
  clusters.assignment.resize(values.size());
  std::transform(values.begin(), values.end(), clusters.assignment.begin(), [&](T value) {
    return cluster_of<typename Ordered<T>::Key>(firsts, Ordered<T>::key(value));
  });
  return clusters;
}

}  // namespace

Clusters<float> kmeans(std::span<const float> values, std::int64_t k) {
  return clusters_of(values, k);
}

Clusters<double> kmeans(std::span<const double> values, std::int64_t k) {
  return clusters_of(values, k);
}

}  // namespace fedhpc
