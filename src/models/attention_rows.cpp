#include "models/attention_rows.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "math/exponential.hpp"

namespace fedhpc {

namespace {

constexpr std::int64_t kLanes = 16;  // of numbers that are added, or compared, together

/// The softmax of the row's first `visible` scores; the others become 0. `padded` has room for
/// them in whole lanes.
template <typename T>
FEDHPC_INLINE void softmax_row(T* row, const T* mask, std::int64_t visible, std::int64_t keys,
                               T* __restrict padded) {
  constexpr T kNothing = -std::numeric_limits<T>::infinity();
  const std::int64_t whole = (visible + kLanes - 1) / kLanes * kLanes;
  for (std::int64_t s = whole - kLanes; s < whole; ++s) padded[s] = kNothing;
  for (std::int64_t s = 0; s < visible; ++s) padded[s] = row[s];
  if (mask != nullptr) {
    for (std::int64_t s = 0; s < visible; ++s) padded[s] += mask[s];
  }
  T lanes[kLanes];
  for (std::int64_t i = 0; i < kLanes; ++i) lanes[i] = padded[i];
  for (std::int64_t s = kLanes; s < whole; s += kLanes) {
    for (std::int64_t i = 0; i < kLanes; ++i) {
      lanes[i] = padded[s + i] > lanes[i] ? padded[s + i] : lanes[i];
    }
  }
  for (std::int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::int64_t i = 0; i < width; ++i) {
      lanes[i] = lanes[i + width] > lanes[i] ? lanes[i + width] : lanes[i];
    }
  }
  const T largest = lanes[0] == kNothing ? T{0} : lanes[0];
  for (T& lane : lanes) lane = 0;
  for (std::int64_t s = 0; s < whole; s += kLanes) {
    for (std::int64_t i = 0; i < kLanes; ++i) {
      padded[s + i] = exp_of(padded[s + i] - largest);
      lanes[i] += padded[s + i];
    }
  }
  for (std::int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::int64_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  const T factor = lanes[0] == 0 ? T{0} : 1 / lanes[0];
  for (std::int64_t s = 0; s < visible; ++s) row[s] = padded[s] * factor;
  for (std::int64_t s = visible; s < keys; ++s) row[s] = 0;
}

template <typename T>
FEDHPC_INLINE void softmax_row_back(const T* weights, const T* dropped, T* __restrict gradient,
                                    std::int64_t visible, std::int64_t keys) {
  T lanes[kLanes] = {};
  std::int64_t s = 0;
  for (; s + kLanes <= visible; s += kLanes) {
    for (std::int64_t i = 0; i < kLanes; ++i) lanes[i] += dropped[s + i] * gradient[s + i];
  }
  for (std::int64_t i = 0; s < visible; ++s, ++i) lanes[i] += dropped[s] * gradient[s];
  for (std::int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::int64_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  const T sum = lanes[0];
  for (s = 0; s < visible; ++s) gradient[s] = dropped[s] * gradient[s] - weights[s] * sum;
  for (; s < keys; ++s) gradient[s] = 0;
}

/// Calls work(offset of the row, number of the sample, of the head and of the query, keys that it
/// sees).
template <typename Work>
FEDHPC_INLINE void for_each_row(const ScoreRows& rows, Work&& work) {
  std::int64_t offset = 0;
  for (std::int64_t b = 0; b < rows.values.size(0); ++b) {
    for (std::int64_t h = 0; h < rows.heads; ++h) {
      for (std::int64_t l = 0; l < rows.queries; ++l, offset += rows.keys) {
        work(offset, b, h, l, rows.causal ? std::min(l + 1, rows.keys) : rows.keys);
      }
    }
  }
}

template <typename T>
FEDHPC_INLINE void softmax_all(const ScoreRows& scores, const Tensor& mask, T* padded) {
  T* values = static_cast<T*>(scores.values.data_ptr());
  const T* added = mask.defined() ? static_cast<const T*>(mask.const_data_ptr()) : nullptr;
  const std::int64_t of_head = scores.queries * scores.keys;
  const std::int64_t of_sample = mask.defined() ? mask.size(1) : 0;
  const bool each_head = of_sample > of_head;
  for_each_row(
      scores, [&](std::int64_t offset, std::int64_t b, std::int64_t h, std::int64_t l,
                  std::int64_t visible) __attribute__((always_inline)) {
        const T* of_row = added == nullptr ? nullptr
                                           : added + b * of_sample + (each_head ? h * of_head : 0) +
                                                 l * scores.keys;
        softmax_row(values + offset, of_row, visible, scores.keys, padded);
      });
}

template <typename T>
FEDHPC_INLINE void softmax_all_back(const ScoreRows& weights, const Tensor& dropped,
                                    const Tensor& gradient) {
  const T* w = static_cast<const T*>(weights.values.const_data_ptr());
  const T* d = static_cast<const T*>(dropped.const_data_ptr());
  T* g = static_cast<T*>(gradient.data_ptr());
  for_each_row(
      weights, [&](std::int64_t offset, std::int64_t, std::int64_t, std::int64_t,
                   std::int64_t visible) __attribute__((always_inline)) {
        softmax_row_back(w + offset, d + offset, g + offset, visible, weights.keys);
      });
}

template <typename T>
FEDHPC_WIDE void wide_softmax_all(const ScoreRows& scores, const Tensor& mask, T* padded) {
  softmax_all(scores, mask, padded);
}

template <typename T>
FEDHPC_WIDE void wide_softmax_all_back(const ScoreRows& weights, const Tensor& dropped,
                                       const Tensor& gradient) {
  softmax_all_back<T>(weights, dropped, gradient);
}

}  // namespace

void softmax_rows(const ScoreRows& scores, const Tensor& mask) {
  with_type(scores.values.scalar_type(), [&]<typename T>() {
    std::vector<T> padded(static_cast<std::size_t>(scores.keys + kLanes));
    const auto run = has_wide_vectors() ? wide_softmax_all<T> : softmax_all<T>;
    run(scores, mask, padded.data());
  });
}

void softmax_rows_back(const ScoreRows& weights, const Tensor& dropped, const Tensor& gradient) {
  with_type(gradient.scalar_type(), [&]<typename T>() {
    const auto run = has_wide_vectors() ? wide_softmax_all_back<T> : softmax_all_back<T>;
    run(weights, dropped, gradient);
  });
}

DropoutFactors::DropoutFactors(const DrawKey& key, double p)
    : draws_(key),
      factor_(1 / (1 - p)),
      limit_(static_cast<std::uint64_t>(std::llround(std::ldexp(p, 32)))) {}

template <typename T>
void DropoutFactors::apply(const T* of, T* to, std::int64_t count) {
  const T factor = static_cast<T>(factor_);
  for (std::int64_t i = 0; i < count; ++i) {
    if (!half_) word_ = draws_.raw();
    const std::uint64_t number = half_ ? word_ >> 32 : word_ & 0xffffffffU;
    half_ = !half_;
    const T kept = number < limit_ ? T{0} : factor;
    to[i] = of == nullptr ? kept : kept * of[i];
  }
}

template void DropoutFactors::apply(const float*, float*, std::int64_t);
template void DropoutFactors::apply(const double*, double*, std::int64_t);

}  // namespace fedhpc
