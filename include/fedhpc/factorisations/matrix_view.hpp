#pragma once

#include <cstdint>
#include <vector>

#include "fedhpc/factorisations/factorisation.hpp"

namespace fedhpc {

/// The weights of a layer as a matrix [O, I]: those of a linear layer as they are, [out, in]; a
/// kernel as [out height, in width] (FedMUD, Section 3.2).
class MatrixView {
 public:
  MatrixView(const WeightShape& shape, ConvView view);

  std::int64_t rows() const { return rows_; }        ///< O
  std::int64_t columns() const { return columns_; }  ///< I
  /// Whether the matrix, row by row, is the weights.
  bool is_weights() const { return kernel_.empty(); }
  /// Of weights [C, p], each a row of numbers side by side; a copy unless it is the weights.
  Tensor matrices_of(const Tensor& w) const;  // [C, O I]
  void to_weights_(const Tensor& matrices,    // [C, O I]
                   const Tensor& w) const;    // [C, p]

 private:
  std::int64_t rows_;
  std::int64_t columns_;
  std::vector<std::int64_t> kernel_;  // {out, in, height, width} of a permuted one
};

}  // namespace fedhpc
