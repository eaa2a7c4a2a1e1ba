#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fedhpc/codecs/compressors.hpp"
#include "fedhpc/core/rng.hpp"
#include "fedhpc/models/layout.hpp"

namespace fedhpc {

/// Binarises FedBAT's updates m of the weights of linear and convolutional layers. In every tensor
/// each entry becomes alpha or -alpha, drawn such that the mean is m where |m| <= alpha. Rows of m
/// are [C, n], of the layout of weights(); L tensors.
class BinaryUpdate {
 public:
  BinaryUpdate() = default;
  explicit BinaryUpdate(const LayoutPtr& model);

  /// The columns that are binarised: all trainable ones but for biases, norms and
  /// embeddings.
  const RowPart& weights() const { return weights_; }
  /// The columns of the L tensors in a row of the model.
  const ColumnRanges& tensors() const { return tensors_; }
  std::int64_t count() const { return static_cast<std::int64_t>(tensors_.size()); }  ///< L

  /// mean |m| of every tensor, [C, L] float64 on the host.
  Tensor mean_magnitudes(const Rows& m) const;

  /// S(m; alpha): alpha where u 2 alpha < m + alpha, u uniform in [0, 1), else -alpha. Row c draws
  /// its n numbers in order with keys[c].
  Rows binarise(const Rows& m, const Tensor& alpha,  // [C, L] float64 on the host
                std::span<const DrawKey> keys) const;

  /// The straight-through gradient: `g` [C, n], that of b = S(m; alpha), becomes that of m, which
  /// is 0 where |m| > alpha. Returns the gradient of alpha, [C, L] float64 on the host. It sums g
  /// (sign(b) - m / alpha) over the tensor, and g sign(m) where |m| > alpha.
  Tensor pull_back_(const Rows& g, const Rows& m, const Rows& b, const Tensor& alpha) const;

 private:
  RowPart weights_;
  ColumnRanges tensors_;
  ColumnRanges parts_;  // where they stand in a row of m
};

}  // namespace fedhpc
