#pragma once

#include "gpu/kernels/kernel.hpp"

// Softmax cross-entropy, as training/loss.hpp has it. A team takes one sample.

namespace fedhpc::kernels {

template <typename T>
struct SoftMax {
  T largest;
  T sum;  // of exp(z - largest)

  /// -log softmax(z)[label], from z[label]
  FEDHPC_KERNEL double loss(T own) const {
    return static_cast<double>(std::log(sum) - (own - largest));
  }
};

template <typename T, typename Group>
FEDHPC_KERNEL SoftMax<T> soft_max(Group& group, const T* z, std::int64_t classes) {
  T largest = static_cast<T>(-HUGE_VAL);
  for (std::int64_t k = group.lane(); k < classes; k += group.lanes()) {
    largest = largest < z[k] ? z[k] : largest;
  }
  largest = group.team_max(largest);
  T sum{0};
  for (std::int64_t k = group.lane(); k < classes; k += group.lanes()) {
    sum += std::exp(z[k] - largest);
  }
  return {largest, group.team_sum(sum)};
}

/// The loss of one client's batch, and the gradient. `gradient` may be the logits themselves.
template <typename T>
struct CrossEntropy {
  std::int64_t batch;
  std::int64_t classes;
  Samples<const T> logits;
  const std::int64_t* labels;
  std::int64_t label_stride;
  Samples<T> gradient;
  double* loss;

  template <typename Group>
  FEDHPC_KERNEL void operator()(Group& group, std::int64_t c) const {
    double part = 0;
    for (std::int64_t b = group.team(); b < batch; b += group.teams()) {
      const T* z = logits(c, b);
      const std::int64_t label = labels[c * label_stride + b];
      const T own = z[label];
      const SoftMax<T> of = soft_max(group, z, classes);
      if (group.lane() == 0) part += of.loss(own);
      if (gradient.data == nullptr) continue;
      group.team_sync();  // the label's logit has been read
      T* g = gradient(c, b);
      const T scale = T{1} / (of.sum * static_cast<T>(batch));
      for (std::int64_t k = group.lane(); k < classes; k += group.lanes()) {
        const T share = std::exp(z[k] - of.largest) * scale;
        g[k] = k == label ? share - T{1} / static_cast<T>(batch) : share;
      }
    }
    const double sum = group.sum(part);
    if (group.rank() == 0) loss[c] += sum;
  }
};

/// Whether samples are told right, and their losses, for some samples a group.
template <typename T>
struct Score {
  static constexpr std::int64_t kSamples = 8;
  std::int64_t batch;
  std::int64_t classes;
  Samples<const T> logits;
  const std::int64_t* labels;
  double* correct;
  double* loss;

  template <typename Group>
  FEDHPC_KERNEL void operator()(Group& group, std::int64_t g) const {
    const std::int64_t end = smaller((g + 1) * kSamples, batch);
    for (std::int64_t b = g * kSamples + group.team(); b < end; b += group.teams()) {
      const T* z = logits(0, b);
      const std::int64_t label = labels[b];
      const T own = z[label];
      const SoftMax<T> of = soft_max(group, z, classes);
      T beaten = own != own ? T{1} : T{0};  // the lowest class wins a tie, NaN is never right
      for (std::int64_t k = group.lane(); k < classes; k += group.lanes()) {
        const bool below = k < label ? z[k] < own : z[k] <= own;
        if (!below) beaten = T{1};
      }
      beaten = group.team_max(beaten);
      if (group.lane() > 0) continue;
      loss[b] = of.loss(own);
      correct[b] = beaten > T{0} ? 0 : 1;
    }
  }
};

}  // namespace fedhpc::kernels
