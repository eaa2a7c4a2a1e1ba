#include "fedhpc/math/gp_tree.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

constexpr std::uint64_t kEpochsOfNode = std::uint64_t{1} << 16;

/// The side a label is on at a node: 1 left, -1 right, 0 neither.
double side_of(const ClassSplit& split, std::int64_t label) {
  if (std::binary_search(split.left.begin(), split.left.end(), label)) return 1;
  return std::binary_search(split.right.begin(), split.right.end(), label) ? -1 : 0;
}

/// Some rows of unit values with their sides.
struct Picked {
  std::vector<std::int64_t> places;
  std::vector<double> sides;

  void add(std::int64_t place, double side) {
    places.push_back(place);
    sides.push_back(side);
  }
  double count(double side) const {
    return static_cast<double>(std::count(sides.begin(), sides.end(), side));
  }
  GpSamples of(const Tensor& units) const {
    const std::int64_t width = units.size(1);
    GpSamples samples{at::empty({static_cast<std::int64_t>(places.size()), width}, at::kDouble),
                      sides};
    auto* to = samples.units.data_ptr<double>();
    for (const std::int64_t place : places) {
      to = std::copy_n(units.const_data_ptr<double>() + place * width, width, to);
    }
    return samples;
  }
};

/// P(side) of the samples of which the tree is over Q(side) of those that are known beside them, or
/// instead.
SideWeights weights_of(const ClassSplit& split, const GpSamples& known) {
  const auto share = [&](std::int64_t samples, double side) {
    const auto of_known = std::count(known.sides.begin(), known.sides.end(), side);
    return static_cast<double>(samples) / static_cast<double>(of_known);
  };
  return {.plus = share(split.left_samples, 1), .minus = share(split.right_samples, -1)};
}

/// Two lists, one after the other.
GpSamples joined(GpSamples first, const GpSamples& second) {
  first.units = at::cat({first.units, second.units});
  first.sides.insert(first.sides.end(), second.sides.begin(), second.sides.end());
  return first;
}

/// The samples of a node.
Picked at_node(const ClassSplit& split, std::span<const std::int64_t> labels) {
  Picked picked;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double side = side_of(split, labels[i]);
    if (side != 0) picked.add(static_cast<std::int64_t>(i), side);
  }
  return picked;
}

DrawKey key_of(const GpDraws& draws, std::size_t node, std::int64_t chain) {
  DrawKey key = draws.key;
  key.epoch = kEpochsOfNode * node + static_cast<std::uint64_t>(chain + 1);
  return key;
}

Tensor draws_at(const GpSamples& known, const GpTreeSettings& settings, const GpDraws& draws,
                std::size_t node) {
  require(draws.chains.draws <= kMostGpChains, "so many chains have keys of their own");
  return gibbs_draws(known, settings.kernel, draws.chains,
                     [&](std::int64_t chain) { return Draws(key_of(draws, node, chain)); });
}

struct KnownAndScored {
  Picked known;
  Picked scored;
};

/// In the order of a permutation, the first of each side are scored.
KnownAndScored part(const Picked& all, double share, const DrawKey& key) {
  const auto count = [&](double side) {
    return static_cast<std::int64_t>(std::floor(share * all.count(side)));
  };
  std::int64_t left = count(1);
  std::int64_t right = count(-1);
  KnownAndScored parted;
  for (const std::int64_t i : permutation(key, static_cast<std::int64_t>(all.sides.size()))) {
    const auto place = static_cast<std::size_t>(i);
    std::int64_t& to_score = all.sides[place] > 0 ? left : right;
    Picked& to = to_score > 0 ? parted.scored : parted.known;
    if (to_score > 0) --to_score;
    to.add(all.places[place], all.sides[place]);
  }
  return parted;
}

/// Adds row i of `part` to row places[i] of `all`.
void add_rows_(const Tensor& all, const std::vector<std::int64_t>& places, const Tensor& part) {
  const std::int64_t width = all.size(1);
  const auto* from = part.const_data_ptr<double>();
  for (const std::int64_t place : places) {
    double* to = all.data_ptr<double>() + place * width;
    for (std::int64_t e = 0; e < width; ++e) to[e] += *from++;
  }
}

}  // namespace

double gp_tree_loss(const ClassTree& tree, const LabelledValues& samples,
                    const GpTreeSettings& settings, const GpDraws& draws, const Tensor& gradient) {
  const Tensor units = unit_rows(samples.values);
  const Tensor of_units = at::zeros(units.sizes(), at::kDouble);
  double loss = 0;
  for (std::size_t k = 0; k < tree.size(); ++k) {
    const KnownAndScored parted =
        part(at_node(tree[k], samples.labels), settings.scored_share, key_of(draws, k, -1));
    if (parted.known.places.empty() || parted.scored.places.empty()) continue;
    const GpSamples known = parted.known.of(units);
    const GpSamples scored = parted.scored.of(units);
    const Tensor omega = draws_at(known, settings, draws, k);
    const Tensor of_known = at::zeros(known.units.sizes(), at::kDouble);
    const Tensor of_scored = at::zeros(scored.units.sizes(), at::kDouble);
    loss += gp_predictive_loss(known, scored, omega, settings.kernel, settings.averaging, of_known,
                               of_scored);
    add_rows_(of_units, parted.known.places, of_known);
    add_rows_(of_units, parted.scored.places, of_scored);
  }
  gradient.copy_(gradient_through_unit_rows(samples.values, units, of_units));
  return loss;
}

double gp_tree_loss(const ClassTree& tree, const LabelledValues& samples,
                    const LabelledValues& points, const GpTreeSettings& settings,
                    const GpDraws& draws, const Tensor& gradient,
                    const Tensor& gradient_of_points) {
  const Tensor units = unit_rows(samples.values);
  const Tensor point_units = unit_rows(points.values);
  const Tensor of_units = at::zeros(units.sizes(), at::kDouble);
  const Tensor of_points = at::zeros(point_units.sizes(), at::kDouble);
  double loss = 0;
  for (std::size_t k = 0; k < tree.size(); ++k) {
    const Picked samples_at = at_node(tree[k], samples.labels);
    const Picked points_at = at_node(tree[k], points.labels);
    if (samples_at.places.empty()) continue;
    const GpSamples known = points_at.of(point_units);
    const GpSamples scored = samples_at.of(units);
    const Tensor omega = draws_at(known, settings, draws, k);
    const Tensor of_known = at::zeros(known.units.sizes(), at::kDouble);
    const Tensor of_scored = at::zeros(scored.units.sizes(), at::kDouble);
    loss += gp_predictive_loss(known, scored, omega, settings.kernel, settings.averaging, of_known,
                               of_scored, weights_of(tree[k], known));
    add_rows_(of_points, points_at.places, of_known);
    add_rows_(of_units, samples_at.places, of_scored);
  }
  gradient.copy_(gradient_through_unit_rows(samples.values, units, of_units));
  gradient_of_points.copy_(gradient_through_unit_rows(points.values, point_units, of_points));
  return loss;
}

GpTree::GpTree(const LabelledValues& known, const LabelledValues& points,
               const GpTreeSettings& settings, const GpDraws& draws)
    : settings_(settings),
      tree_(class_tree(known.values, known.labels)),
      classes_(known.labels.begin(), known.labels.end()) {
  std::sort(classes_.begin(), classes_.end());
  classes_.erase(std::unique(classes_.begin(), classes_.end()), classes_.end());
  const Tensor units = unit_rows(known.values);
  const Tensor point_units = unit_rows(points.values);
  for (std::size_t k = 0; k < tree_.size(); ++k) {
    const Picked of_node = at_node(tree_[k], known.labels);
    GpSamples all = joined(of_node.of(units), at_node(tree_[k], points.labels).of(point_units));
    Tensor omega = draws_at(all, settings_, draws, k);
    const SideWeights weights = weights_of(tree_[k], all);
    nodes_.push_back({std::move(all), std::move(omega), weights});
  }
}

Tensor GpTree::log_probabilities(const Tensor& values, std::int64_t classes) const {
  const std::int64_t count = values.size(0);
  const Tensor table = at::full({count, classes}, classes_.empty() ? 1.0 : 0.0, at::kDouble);
  auto* probability = table.data_ptr<double>();
  for (std::int64_t i = 0; i < count; ++i) {
    for (const std::int64_t label : classes_) probability[i * classes + label] = 1;
  }
  const Tensor units = unit_rows(values);
  for (std::size_t k = 0; k < tree_.size() && count > 0; ++k) {
    const std::vector<double> left = gp_probabilities(nodes_[k].known, nodes_[k].omega,
                                                      settings_.kernel, settings_.averaging, units);
    for (std::int64_t i = 0; i < count; ++i) {
      const double p = weighed(left[static_cast<std::size_t>(i)], 1, nodes_[k].weights).value;
      double* row = probability + i * classes;
      for (const std::int64_t label : tree_[k].left) row[label] *= p;
      for (const std::int64_t label : tree_[k].right) row[label] *= 1 - p;
    }
  }
  for (std::int64_t i = 0; i < count * classes; ++i) {
    probability[i] = std::log(probability[i] + kLeastProbability);
  }
  return table;
}

}  // namespace fedhpc
