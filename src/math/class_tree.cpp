#include "fedhpc/math/class_tree.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

constexpr int kMostIterations = 100;

using Groups = std::vector<bool>;

class TwoMeans {
 public:
  explicit TwoMeans(const Tensor& points)
      : points_(points.const_data_ptr<double>()), count_(points.size(0)), width_(points.size(1)) {}

  /// What Lloyd's iterations come to from two points as centres; empty where a group gets none.
  Groups from(std::int64_t first, std::int64_t second) const {
    std::vector<double> a(row(first), row(first) + width_);
    std::vector<double> b(row(second), row(second) + width_);
    Groups groups;
    for (int i = 0; i < kMostIterations; ++i) {
      Groups next;
      for (std::int64_t p = 0; p < count_; ++p) {
        next.push_back(squared_distance(p, a) <= squared_distance(p, b));
      }
      if (next == groups) break;
      groups = std::move(next);
      if (std::count(groups.begin(), groups.end(), true) % count_ == 0) return {};
      a = mean(groups, true);
      b = mean(groups, false);
    }
    if (!groups.front()) groups.flip();
    return groups;
  }

  double sum_of_squares(const Groups& groups) const {
    const std::vector<double> a = mean(groups, true);
    const std::vector<double> b = mean(groups, false);
    double sum = 0;
    for (std::int64_t p = 0; p < count_; ++p) {
      sum += squared_distance(p, groups[static_cast<std::size_t>(p)] ? a : b);
    }
    return sum;
  }

 private:
  const double* row(std::int64_t p) const { return points_ + p * width_; }

  double squared_distance(std::int64_t p, const std::vector<double>& centre) const {
    double sum = 0;
    for (std::int64_t e = 0; e < width_; ++e) {
      const double difference = row(p)[e] - centre[static_cast<std::size_t>(e)];
      sum += difference * difference;
    }
    return sum;
  }

  std::vector<double> mean(const Groups& groups, bool of) const {
    std::vector<double> sum(static_cast<std::size_t>(width_), 0);
    double members = 0;
    for (std::int64_t p = 0; p < count_; ++p) {
      if (groups[static_cast<std::size_t>(p)] != of) continue;
      for (std::int64_t e = 0; e < width_; ++e) sum[static_cast<std::size_t>(e)] += row(p)[e];
      members += 1;
    }
    for (double& value : sum) value /= members;
    return sum;
  }

  const double* points_;
  std::int64_t count_;
  std::int64_t width_;
};

/// The mean of each class's values: [classes, E], in ascending order of class.
Tensor class_means(const Tensor& values, std::span<const std::int64_t> labels,
                   const std::map<std::int64_t, std::int64_t>& places) {
  const std::int64_t width = values.size(1);
  const Tensor means = at::zeros({static_cast<std::int64_t>(places.size()), width}, at::kDouble);
  std::vector<double> counts(places.size(), 0);
  const auto* row = values.const_data_ptr<double>();
  for (const std::int64_t label : labels) {
    const std::int64_t place = places.at(label);
    double* sum = means.data_ptr<double>() + place * width;
    for (std::int64_t e = 0; e < width; ++e) sum[e] += *row++;
    counts[static_cast<std::size_t>(place)] += 1;
  }
  auto* mean = means.data_ptr<double>();
  for (const double count : counts) {
    for (std::int64_t e = 0; e < width; ++e) *mean++ /= count;
  }
  return means;
}

}  // namespace

std::vector<bool> two_means(const Tensor& points) {
  const std::int64_t count = points.size(0);
  require(count >= 2, "two groups have two points");
  const TwoMeans problem(points);
  Groups best;
  double least = std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t j = i + 1; j < count; ++j) {
      const Groups groups = problem.from(i, j);
      if (groups.empty()) continue;
      const double sum = problem.sum_of_squares(groups);
      if (!(sum < least)) continue;
      least = sum;
      best = groups;
    }
  }
  if (best.empty()) {
    best.assign(static_cast<std::size_t>(count), false);
    std::fill_n(best.begin(), (count + 1) / 2, true);
  }
  return best;
}

ClassTree class_tree(const Tensor& values, std::span<const std::int64_t> labels) {
  require(values.size(0) == static_cast<std::int64_t>(labels.size()), "a label for every sample");
  std::map<std::int64_t, std::int64_t> places;  // of classes in ascending order
  std::map<std::int64_t, std::int64_t> samples;
  for (const std::int64_t label : labels) {
    places[label] = 0;
    ++samples[label];
  }
  std::vector<std::int64_t> all;
  for (auto& [label, place] : places) {
    place = static_cast<std::int64_t>(all.size());
    all.push_back(label);
  }
  const Tensor means = class_means(values, labels, places);
  ClassTree tree;
  std::deque<std::vector<std::int64_t>> open{all};
  for (; !open.empty(); open.pop_front()) {
    const std::vector<std::int64_t>& classes = open.front();
    if (classes.size() < 2) continue;
    const Tensor points =
        at::empty({static_cast<std::int64_t>(classes.size()), values.size(1)}, at::kDouble);
    for (std::size_t i = 0; i < classes.size(); ++i) {
      points[static_cast<std::int64_t>(i)].copy_(means[places.at(classes[i])]);
    }
    const std::vector<bool> is_left = two_means(points);
    ClassSplit split;
    for (std::size_t i = 0; i < classes.size(); ++i) {
      (is_left[i] ? split.left : split.right).push_back(classes[i]);
      (is_left[i] ? split.left_samples : split.right_samples) += samples.at(classes[i]);
    }
    tree.push_back(split);
    open.push_back(split.left);
    open.push_back(split.right);
  }
  return tree;
}

}  // namespace fedhpc
