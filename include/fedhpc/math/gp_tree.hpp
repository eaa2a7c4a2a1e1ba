#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "fedhpc/math/binary_gp.hpp"
#include "fedhpc/math/class_tree.hpp"

namespace fedhpc {

/// Embedded samples and their classes.
struct LabelledValues {
  Tensor values;                         // [n, E] float64, contiguous
  std::span<const std::int64_t> labels;  // [n]
};

struct GpTreeSettings {
  GpKernel kernel{};
  Averaging averaging = Averaging::Probability;
  double scored_share = 0.5;  ///< share of each side of a node that a loss scores, rounded down
};

/// Names the draws of a tree. Chain c of node number k (in order of the ClassTree) takes epoch 2^16
/// k + c + 1. The choice of the samples that a node's loss scores has c = -1.
struct GpDraws {
  DrawKey key{};  ///< but for the epoch
  GibbsChains chains{};
};

constexpr std::int64_t kMostGpChains = (std::int64_t{1} << 16) - 1;

/// Returns the predictive loss of a tree of binary GP classifiers on some samples. Every node parts
/// its samples, side by side, into known and scored ones. The loss is the mean over the scored ones
/// of -log P(side | known ones), summed over nodes. Samples of classes that are not in the tree
/// take no part, nor do nodes with nothing to score. Writes the gradient with respect to the
/// values, for fixed Polya-Gamma draws.
double gp_tree_loss(const ClassTree& tree, const LabelledValues& samples,
                    const GpTreeSettings& settings, const GpDraws& draws,
                    const Tensor& gradient);  // [n, E] float64, contiguous

/// Returns the loss of samples by classifiers that know only inducing points: values of the kind of
/// embeddings with labels of their own. At every node a classifier that knows the node's points
/// scores all the node's samples. Its probabilities are weighed by P(side) / Q(side), of the samples
/// of which the tree is (a batch may have one side alone) and of points. Writes the gradients with respect to both lists of values; that of points whose
/// class is not in the tree is 0.
double gp_tree_loss(const ClassTree& tree, const LabelledValues& samples,
                    const LabelledValues& points, const GpTreeSettings& settings,
                    const GpDraws& draws,
                    const Tensor& gradient,             // [n, E] float64, contiguous
                    const Tensor& gradient_of_points);  // [m, E] float64, contiguous

/// A tree of binary GP classifiers that know some samples, and inducing points of their classes.
/// Its probabilities are then weighed by P(side) / Q(side), of the samples and of all that is
/// known.
class GpTree {
 public:
  GpTree(const LabelledValues& known, const GpTreeSettings& settings, const GpDraws& draws)
      : GpTree(known, {.values = known.values.narrow(0, 0, 0), .labels = {}}, settings, draws) {}
  GpTree(const LabelledValues& known, const LabelledValues& points, const GpTreeSettings& settings,
         const GpDraws& draws);

  /// Returns log P(class) of samples with these values [m, E]: [m, classes]. A class is as probable
  /// as the sides that lead to it are together. Classes of no known sample have kLeastProbability.
  /// Where nothing is known, all have the same.
  Tensor log_probabilities(const Tensor& values, std::int64_t classes) const;

 private:
  struct Node {
    GpSamples known;
    Tensor omega;  // [draws, n]
    SideWeights weights;
  };

  GpTreeSettings settings_;
  ClassTree tree_;
  std::vector<Node> nodes_;
  std::vector<std::int64_t> classes_;  // with samples, ascending
};

}  // namespace fedhpc
