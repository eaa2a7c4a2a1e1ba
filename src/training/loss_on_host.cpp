// train.loss on host memory.

#include <algorithm>
#include <cmath>
#include <vector>

#include "fedhpc/training/loss.hpp"

namespace fedhpc {

namespace {

/// -log softmax(z) of all classes; leaves softmax(z) in `shares`.
template <typename T>
class Place {
 public:
  explicit Place(std::int64_t classes) : shares_(static_cast<std::size_t>(classes)) {}

  void read(const T* z) {
    const auto classes = std::ssize(shares_);
    largest_ = *std::max_element(z, z + classes);
    T sum{0};
    for (std::int64_t k = 0; k < classes; ++k) {
      shares_[k] = std::exp(z[k] - largest_);
      sum += shares_[k];
    }
    log_sum_ = std::log(sum);
    for (T& share : shares_) share /= sum;
  }
  /// -log softmax(z)[k], from z[k].
  T loss(T z) const { return log_sum_ - (z - largest_); }
  T share(std::int64_t k) const { return shares_[k]; }

 private:
  std::vector<T> shares_;
  T largest_ = 0;
  T log_sum_ = 0;  // of exp(z - largest)
};

template <typename T>
struct Values {
  T loss;
  T slope;  // its derivative
};

template <typename T>
Values<T> binary(T z, T y) {
  const T small = std::exp(-std::abs(z));
  const T share = (z >= 0 ? T{1} : small) / (T{1} + small);  // of NaN: NaN
  return {std::max(z, T{0}) - z * y + std::log1p(small), share - y};
}

template <typename T>
Values<T> square(T z, T y) {
  return {(z - y) * (z - y), 2 * (z - y)};
}

/// Target t of a sample as a number.
template <typename T>
T number_at(const Tensor& targets, std::int64_t place) {
  return targets.scalar_type() == at::kLong
             ? static_cast<T>(targets.const_data_ptr<std::int64_t>()[place])
             : targets.const_data_ptr<T>()[place];
}

}  // namespace

void Loss::take(const Tensor& outputs, const Tensor& targets, const Tensor& gradient, double* sums,
                double* counts) const {
  if (!sequences_) {
    for (std::int64_t c = 0; c < outputs.size(0); ++c) {
      counts[c] += static_cast<double>(outputs.size(1));
    }
  }
  if (is_plain()) {
    softmax_cross_entropy(outputs, targets, gradient, sums);
  } else if (kind_ == LossKind::CrossEntropy) {
    take_classes(outputs, targets, gradient, sums, counts);
  } else {
    take_values(outputs, targets, gradient, sums);
  }
}

// With share e of smoothing, the loss of a place is (1 - e) (-log p[y]) + e / K sum_k -log p[k].
void Loss::take_classes(const Tensor& outputs, const Tensor& targets, const Tensor& gradient,
                        double* sums, double* counts) const {
  const std::int64_t batch = outputs.size(1);
  const std::int64_t classes = outputs.size(2) / places_;
  with_type(outputs.scalar_type(), [&]<typename T>() {
    Place<T> place(classes);
    const T even = static_cast<T>(smoothing_) / static_cast<T>(classes);
    const T sharp = T{1} - static_cast<T>(smoothing_);
    for (std::int64_t c = 0; c < outputs.size(0); ++c) {
      const std::int64_t* y = targets.const_data_ptr<std::int64_t>() + c * targets.stride(0);
      const std::int64_t* end = y + batch * places_;
      const std::int64_t count =
          batch * places_ - (sequences_ ? std::count(y, end, ignored_) : std::int64_t{0});
      if (sequences_) counts[c] += static_cast<double>(count);
      const T part = T{1} / static_cast<T>(std::max<std::int64_t>(count, 1));
      double sum = 0;
      for (std::int64_t i = 0; i < batch * places_; ++i) {
        const std::int64_t b = i / places_;
        const std::int64_t first = i % places_ * classes;
        const T* z =
            outputs.const_data_ptr<T>() + c * outputs.stride(0) + b * outputs.stride(1) + first;
        const bool counted = !sequences_ || y[i] != ignored_;
        if (counted) {
          place.read(z);
          T all{0};
          for (std::int64_t k = 0; k < classes && even > 0; ++k) all += place.loss(z[k]);
          sum += static_cast<double>(sharp * place.loss(z[y[i]]) + even * all);
        }
        if (!gradient.defined()) continue;
        T* g = gradient.data_ptr<T>() + c * gradient.stride(0) + b * gradient.stride(1) + first;
        for (std::int64_t k = 0; k < classes; ++k) {
          g[k] = counted ? (place.share(k) - even) * part : T{0};
        }
        if (counted) g[y[i]] -= sharp * part;
      }
      sums[c] += sum;
    }
  });
}

void Loss::take_values(const Tensor& outputs, const Tensor& targets, const Tensor& gradient,
                       double* sums) const {
  const std::int64_t batch = outputs.size(1);
  with_type(outputs.scalar_type(), [&]<typename T>() {
    const T part = T{1} / static_cast<T>(batch * places_);
    for (std::int64_t c = 0; c < outputs.size(0); ++c) {
      double sum = 0;
      for (std::int64_t b = 0; b < batch; ++b) {
        const T* z = outputs.const_data_ptr<T>() + c * outputs.stride(0) + b * outputs.stride(1);
        T* g = gradient.defined()
                   ? gradient.data_ptr<T>() + c * gradient.stride(0) + b * gradient.stride(1)
                   : nullptr;
        for (std::int64_t t = 0; t < places_; ++t) {
          const T y = number_at<T>(targets, c * targets.stride(0) + b * places_ + t);
          const Values<T> of =
              kind_ == LossKind::BinaryCrossEntropy ? binary(z[t], y) : square(z[t], y);
          sum += static_cast<double>(of.loss);
          if (g != nullptr) g[t] = of.slope * part;
        }
      }
      sums[c] += sum / static_cast<double>(places_);
    }
  });
}

namespace {

/// Whether the label's logit is the largest; the lowest class wins a tie, NaN never.
template <typename T>
bool is_told(const T* z, std::int64_t classes, std::int64_t label) {
  const T own = z[label];
  bool best = !std::isnan(own);
  for (std::int64_t k = 0; k < classes && best; ++k) best = k < label ? z[k] < own : z[k] <= own;
  return best;
}

}  // namespace

void Loss::score(const Tensor& outputs, const Tensor& targets, double* scores,
                 std::int64_t stride) const {
  if (of_labels()) {
    score_samples(outputs, targets.const_data_ptr<std::int64_t>(), scores, scores + stride);
    return;
  }
  const bool classes = kind_ == LossKind::CrossEntropy;
  const std::int64_t width = classes ? outputs.size(1) / places_ : 1;
  with_type(outputs.scalar_type(), [&]<typename T>() {
    Place<T> place(width);
    for (std::int64_t b = 0; b < outputs.size(0); ++b) {
      const T* z = outputs.const_data_ptr<T>() + b * outputs.stride(0);
      double right = 0;
      double loss = 0;
      double counted = 0;
      double hits = 0;
      double positives = 0;
      for (std::int64_t t = 0; t < places_; ++t, z += width) {
        if (classes) {
          const std::int64_t y = targets.const_data_ptr<std::int64_t>()[b * places_ + t];
          if (y == ignored_) continue;
          place.read(z);
          loss += static_cast<double>(place.loss(z[y]));
          right += is_told(z, width, y) ? 1 : 0;
          ++counted;
          continue;
        }
        const T y = number_at<T>(targets, b * places_ + t);
        const bool bits = kind_ == LossKind::BinaryCrossEntropy;
        loss += static_cast<double>((bits ? binary(*z, y) : square(*z, y)).loss);
        if (!bits) continue;
        right += (*z > 0) == (y > 0) && !std::isnan(*z) ? 1 : 0;
        hits += *z > 0 && y > 0 ? 1 : 0;
        positives += (*z > 0 ? 1 : 0) + (y > 0 ? 1 : 0);
      }
      const bool all =
          kind_ == LossKind::BinaryCrossEntropy && right == static_cast<double>(places_);
      scores[b] = classes ? right : all ? 1 : 0;
      scores[stride + b] = classes ? loss : loss / static_cast<double>(places_);
      if (classes) scores[2 * stride + b] = counted;
      if (kind_ != LossKind::BinaryCrossEntropy) continue;
      scores[2 * stride + b] = hits;
      scores[3 * stride + b] = positives;
    }
  });
}

}  // namespace fedhpc
