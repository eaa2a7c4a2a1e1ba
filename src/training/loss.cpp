#include "fedhpc/training/loss.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "fedhpc/core/device.hpp"
#include "fedhpc/training/device_kernels.hpp"

namespace fedhpc {

namespace {

/// -log softmax(z)[label]; exp(z - max) is left in `shifted` and the sum of that in `sum`. The label's
/// logit meets the maximum first: their difference keeps the digits that large logits would take.
template <typename T>
T cross_entropy(const T* z, std::int64_t classes, std::int64_t label, T* shifted, T& sum) {
  const T largest = *std::max_element(z, z + classes);
  sum = T{0};
  for (std::int64_t k = 0; k < classes; ++k) {
    shifted[k] = std::exp(z[k] - largest);
    sum += shifted[k];
  }
  return std::log(sum) - (z[label] - largest);
}

}  // namespace

void softmax_cross_entropy(const Tensor& logits, const Tensor& labels, const Tensor& gradient,
                           double* loss) {
  const std::int64_t batch = logits.size(1);
  const std::int64_t classes = logits.size(2);
  with_type(logits.scalar_type(), [&]<typename T>() {
    std::vector<T> shifted(static_cast<std::size_t>(classes));
    for (std::int64_t c = 0; c < logits.size(0); ++c) {
      const std::int64_t* y = labels.const_data_ptr<std::int64_t>() + c * labels.stride(0);
      double client_loss = 0;
      for (std::int64_t b = 0; b < batch; ++b) {
        const T* z = logits.const_data_ptr<T>() + c * logits.stride(0) + b * logits.stride(1);
        T sum{};
        client_loss += static_cast<double>(cross_entropy(z, classes, y[b], shifted.data(), sum));
        if (!gradient.defined()) continue;
        T* g = gradient.data_ptr<T>() + c * gradient.stride(0) + b * gradient.stride(1);
        const T scale = T{1} / (sum * static_cast<T>(batch));
        for (std::int64_t k = 0; k < classes; ++k)
          g[k] = shifted[static_cast<std::size_t>(k)] * scale;
        g[y[b]] -= T{1} / static_cast<T>(batch);
      }
      loss[c] += client_loss;
    }
  });
}

void softmax_cross_entropy(const Tensor& logits, const Tensor& labels, const Tensor& gradient,
                           const Tensor& loss) {
  device_kernels<TrainingKernels>().cross_entropy(
      {.type = real_of(logits),
       .logits = device_stack(logits),
       .labels = labels.const_data_ptr<std::int64_t>(),
       .label_stride = labels.stride(0),
       .gradient = gradient.defined() ? device_stack(gradient) : DeviceStack{},
       .loss = loss.data_ptr<double>()});
}

void score_samples(const Tensor& logits, const Tensor& labels, const Tensor& correct,
                   const Tensor& loss) {
  device_kernels<TrainingKernels>().score({.type = real_of(logits),
                                           .logits = device_stack(logits.unsqueeze(0)),
                                           .labels = labels.const_data_ptr<std::int64_t>(),
                                           .correct = correct.data_ptr<double>(),
                                           .loss = loss.data_ptr<double>()});
}

void score_samples(const Tensor& logits, const std::int64_t* labels, double* correct,
                   double* loss) {
  const std::int64_t classes = logits.size(1);
  with_type(logits.scalar_type(), [&]<typename T>() {
    std::vector<T> shifted(static_cast<std::size_t>(classes));
    for (std::int64_t b = 0; b < logits.size(0); ++b) {
      const T* z = logits.const_data_ptr<T>() + b * logits.stride(0);
      const T own = z[labels[b]];
      T sum{};
      loss[b] = static_cast<double>(cross_entropy(z, classes, labels[b], shifted.data(), sum));
      bool best = !std::isnan(own);
      for (std::int64_t k = 0; k < classes && best; ++k) {
        best = k < labels[b] ? z[k] < own : z[k] <= own;
      }
      correct[b] = best ? 1 : 0;
    }
  });
}

}  // namespace fedhpc
