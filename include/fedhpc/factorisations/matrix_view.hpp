#pragma once

#include <cstdint>
#include <vector>

#include "fedhpc/factorisations/factorisation.hpp"

namespace fedhpc {

/// Views a layer's weights as a matrix [O, I] (FedMUD, Section 3.2). Those of a linear layer are
/// it, [out, in]; a kernel becomes [out height, in width].
class MatrixView {
 public:
  MatrixView(const WeightShape& shape, ConvView view);

  std::int64_t rows() const { return rows_; }        ///< O
  std::int64_t columns() const { return columns_; }  ///< I
  /// True where the matrix, row by row, is the weights.
  bool is_weights() const { return kernel_.empty(); }
  /// The matrices of weights [C, p], each a row of numbers side by side; copies unless
  /// is_weights().
  Tensor matrices_of(const Tensor& w) const;  // [C, O I]
  void to_weights_(const Tensor& matrices,    // [C, O I]
                   const Tensor& w) const;    // [C, p]

 private:
  std::int64_t rows_ = 0;
  std::int64_t columns_ = 0;
  std::vector<std::int64_t> kernel_;  // {out, in, height, width} of a permuted one
};

}  // namespace fedhpc
