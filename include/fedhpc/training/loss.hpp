#pragma once

#include <cstdint>

#include "fedhpc/core/tensor.hpp"
#include "fedhpc/data/dataset.hpp"
#include "fedhpc/models/model.hpp"

namespace fedhpc {

enum class LossKind { Auto, CrossEntropy, BinaryCrossEntropy, MeanSquaredError };

/// The keys of a loss below `train`.
struct LossOptions {
  LossKind kind = LossKind::Auto;
  double label_smoothing = 0;
  std::int64_t ignored_label = -100;  ///< of sequences
};

/// The loss of a model's outputs [..., V] at targets [..., T], and how samples are scored by it.
/// Cross entropy reads V = T K outputs, K logits at each of T places; the other losses read one of
/// each target.
///
/// The loss of a batch is PyTorch's mean: over its T B targets or, of sequences, over the places
/// whose label is not the ignored one. A batch of none has loss 0 and gradient 0. Sums are of what
/// `counts` counts: samples, each with the mean of its targets; places of sequences.
class Loss {
 public:
  /// Cross entropy on one label a sample, of as many classes as there are outputs.
  Loss() = default;
  /// The loss that options ask for on these targets or on labels of K classes. Throws ConfigError
  /// where they do not go together.
  Loss(const LossOptions& options, const Targets& targets, std::int64_t classes);

  /// The same for a model with so many outputs: a sequence's places may have more classes than
  /// their labels show. Throws ConfigError where they do not fit.
  Loss of_outputs(std::int64_t outputs) const;
  /// Throws ConfigError where outputs of this shape for a sample do not end in the classes at each
  /// place, but for dimensions of length 1; empty: they are in a row.
  void check_shape(const Shape& outputs) const;

  LossKind kind() const { return kind_; }
  Outputs outputs() const;  ///< V in all, at least
  bool of_sequences() const { return sequences_; }
  /// True of cross entropy on the sample's label.
  bool of_labels() const { return kind_ == LossKind::CrossEntropy && !sequences_; }
  /// The mean loss of a model that knows nothing.
  double of_guessing() const;

  /// Adds the sums of stacked batches to sums[c] and what they are of to counts[c]. Writes the
  /// gradients of the batches' means if `gradient` is defined; it may be the outputs' memory.
  void take(const Tensor& outputs,   // [C, B, V]
            const Tensor& targets,   // [C, B] or [C, B, T]
            const Tensor& gradient,  // [C, B, V] or undefined
            double* sums,            // [C]
            double* counts) const;   // [C]
  /// The same on a device, enqueued. `counts` is undefined but for sequences.
  void take(const Tensor& outputs, const Tensor& targets, const Tensor& gradient,
            const Tensor& sums,           // [C] float64
            const Tensor& counts) const;  // [C] float64 or undefined

  /// M, the numbers of a sample's score.
  std::int64_t measures() const;
  /// Scores one batch sample by sample, without label smoothing. Score m of sample b goes to
  /// scores[m stride + b]: how much is right (the sample, all of its targets; places of a sequence;
  /// nothing of numbers), the loss, and
  ///   of sequences: the places that count;
  ///   of binary cross entropy: true positives, and predicted plus true positives.
  /// The lowest class wins a tie, NaN is never right.
  void score(const Tensor& outputs,  // [B, V]
             const Tensor& targets,  // [B] or [B, T]
             double* scores, std::int64_t stride) const;
  /// The same on a device, enqueued.
  void score(const Tensor& outputs, const Tensor& targets,
             const Tensor& scores) const;  // [M, B] float64

 private:
  /// Cross entropy on the sample's label as kernels of our own have it.
  bool is_plain() const { return of_labels() && smoothing_ == 0; }
  void take_classes(const Tensor& outputs, const Tensor& targets, const Tensor& gradient,
                    double* sums, double* counts) const;
  void take_values(const Tensor& outputs, const Tensor& targets, const Tensor& gradient,
                   double* sums) const;

  LossKind kind_ = LossKind::CrossEntropy;
  std::int64_t places_ = 1;   // T
  std::int64_t classes_ = 0;  // K of a place; 0: as many as outputs
  bool sequences_ = false;
  double smoothing_ = 0;
  std::int64_t ignored_ = -100;
  double mean_square_ = 1;  // of numbers
};

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
