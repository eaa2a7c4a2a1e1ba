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
  double scored_share = 0.5;  ///< of each side of a node, rounded down: what a loss scores
};

/// Names the draws of a tree. Chain c of node number k (in order of the ClassTree) takes epoch
/// 2^16 k + c + 1; what decides which samples a node's loss scores has c = -1.
struct GpDraws {
  DrawKey key{};  ///< but for the epoch
  GibbsChains chains{};
};

constexpr std::int64_t kMostGpChains = (std::int64_t{1} << 16) - 1;

/// The predictive loss of a tree of binary GP classifiers on some samples: at every node, the
/// node's samples are parted, side by side, into known and scored ones; the loss is the mean over
/// the scored ones of -log P(side | known ones), summed over nodes. Samples of classes that are not
/// in the tree take no part, and nor do nodes that have nothing to score. Writes the gradient with
/// respect to the values, for fixed Polya-Gamma draws.
double gp_tree_loss(const ClassTree& tree, const LabelledValues& samples,
                    const GpTreeSettings& settings, const GpDraws& draws,
                    const Tensor& gradient);  // [n, E] float64, contiguous

/// A tree of binary GP classifiers that know some samples.
class GpTree {
 public:
  GpTree(const LabelledValues& known, const GpTreeSettings& settings, const GpDraws& draws);

  /// log P(class) of samples with these values [m, E]: [m, classes]. A class is as probable as the
  /// sides that lead to it are together. Classes of no known sample have kLeastProbability; where
  /// nothing is known, all have the same.
  Tensor log_probabilities(const Tensor& values, std::int64_t classes) const;

 private:
  struct Node {
    GpSamples known;
    Tensor omega;  // [draws, n]
  };

  GpTreeSettings settings_;
  ClassTree tree_;
  std::vector<Node> nodes_;
  std::vector<std::int64_t> classes_;  // that have samples, ascending
};

}  // namespace fedhpc
