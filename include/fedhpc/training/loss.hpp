#pragma once

#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

/// Softmax cross-entropy of stacked batches. Adds to loss[c] the sum (not the mean) over the batch
/// of -log softmax(logits)[label], and writes d(mean loss)/d(logits) = (softmax - onehot) / B if
/// `gradient` is defined. Stable for any finite logits; NaN logits give a NaN loss.
void softmax_cross_entropy(const Tensor& logits,    // [C, B, K]
                           const Tensor& labels,    // [C, B] int64
                           const Tensor& gradient,  // [C, B, K] or undefined
                           double* loss);           // [C]

/// Adds to loss [C] float64 on a device, enqueued.
void softmax_cross_entropy(const Tensor& logits, const Tensor& labels, const Tensor& gradient,
                           const Tensor& loss);

/// Scores one batch row by row. Writes for each sample correct (0 or 1; the lowest class wins a
/// tie, NaN is never correct) and loss.
void score_samples(const Tensor& logits,        // [B, K]
                   const std::int64_t* labels,  // [B]
                   double* correct,             // [B]
                   double* loss);               // [B]

/// Scores on a device, enqueued.
void score_samples(const Tensor& logits,   // [B, K]
                   const Tensor& labels,   // [B] int64
                   const Tensor& correct,  // [B] float64
                   const Tensor& loss);    // [B] float64

}  // namespace fedhpc
