#pragma once

#include "fedhpc/core/tensor.hpp"

// What attention does with rows of scores [samples, heads, queries, keys] in host memory.

namespace fedhpc {

/// Rows of scores, one after the other.
struct ScoreRows {
  Tensor values;  // [samples, heads queries keys]
  std::int64_t heads = 0;
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  bool causal = false;  // query l sees the keys 0 ... l
};

/// Scores become the softmax of their rows. A mask is added first: [samples, queries keys], or one
/// for each head. A row without a finite score becomes zeros.
void softmax_rows(const ScoreRows& scores, const Tensor& mask);

/// Scores' gradient of that: gradient = dropped gradient - weights (the row's sum of dropped
/// gradient). `dropped` are the weights after dropout, whose gradient `gradient` is at first.
void softmax_rows_back(const ScoreRows& weights, const Tensor& dropped, const Tensor& gradient);

/// The transposes [columns, rows] of the matrices [rows, columns] that lie one after the other.
void transpose_matrices(const Tensor& from, std::int64_t rows, std::int64_t columns,
                        const Tensor& to);

}  // namespace fedhpc
