#pragma once

#include "fedhpc/core/rng.hpp"
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

/// The factors of dropout, in order: 0 with probability p, else 1 / (1 - p). Number j of a key is
/// the low half of the key's word j / 2 for an even j, else the high half; below p 2^32 the factor
/// is 0.
class DropoutFactors {
 public:
  DropoutFactors(const DrawKey& key, double p);

  /// to[i] = factor of[i], one after the other; `of` null: the factors themselves.
  template <typename T>
  void apply(const T* of, T* to, std::int64_t count);

 private:
  Draws draws_;
  double factor_;
  std::uint64_t limit_;
  std::uint64_t word_ = 0;
  bool half_ = false;  // of the word is left
};

}  // namespace fedhpc
