#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fedhpc/codecs/compressors.hpp"
#include "fedhpc/core/rng.hpp"
#include "fedhpc/models/layout.hpp"

namespace fedhpc {

/// Updates m of the weights of linear and convolutional layers, and what FedBAT makes of them: in
/// every tensor alpha or -alpha in the place of each entry, drawn such that the mean is m where
/// |m| <= alpha. Rows of m are [C, n], of the layout of weights(); L tensors.
class BinaryUpdate {
 public:
  BinaryUpdate() = default;
  explicit BinaryUpdate(const LayoutPtr& model);

  /// Which columns of a model are binarised: all that are trainable, but for biases and batch norm.
  const RowPart& weights() const { return weights_; }
  /// Where the L tensors stand in a row of the model.
  const ColumnRanges& tensors() const { return tensors_; }
  std::int64_t count() const { return static_cast<std::int64_t>(tensors_.size()); }  ///< L

  /// mean |m| of every tensor, [C, L] float64 on the host.
  Tensor mean_magnitudes(const Rows& m) const;

  /// B(m; alpha): alpha where u 2 alpha < m + alpha, u uniform in [0, 1), else -alpha. Row c draws
  /// its n numbers in order with keys[c].
  Rows binarise(const Rows& m, const Tensor& alpha,  // [C, L] float64 on the host
                std::span<const DrawKey> keys) const;

  /// The straight-through gradient: `g` [C, n], that of b = B(m; alpha), becomes that of m, which
  /// is 0 where |m| > alpha. Gives that of alpha, the sum over the tensor of g (sign(b) - m /
  /// alpha), of g sign(m) where |m| > alpha: [C, L] float64 on the host.
  Tensor pull_back_(const Rows& g, const Rows& m, const Rows& b, const Tensor& alpha) const;

 private:
  RowPart weights_;
  ColumnRanges tensors_;
  ColumnRanges parts_;  // where they stand in a row of m
};

}  // namespace fedhpc
