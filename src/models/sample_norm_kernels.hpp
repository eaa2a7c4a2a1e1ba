#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "fedhpc/models/sample_norm.hpp"

#include "models/norm_kernels.hpp"

// Passes over one part of one sample.

namespace fedhpc {

/// So many values are added in T, the sums of more in float64.
inline constexpr std::int64_t kPiece = 1024;

template <typename T>
Moments part_moments(const T* x, std::int64_t length) {
  if (length <= kPiece) return moments(Planes<const T>{x, 0, 1, length});
  TwoSums sums;
  const auto each_piece = [&](auto&& work) {
    for (std::int64_t i = 0; i < length; i += kPiece) work(x + i, std::min(kPiece, length - i));
  };
  each_piece([&](const T* piece, std::int64_t count) {
    add_sums<T>(
        count, [=](std::int64_t i) { return piece[i]; }, [](std::int64_t) { return T{0}; }, sums);
  });
  const auto n = static_cast<double>(length);
  const double mean = sums.first / n;
  const T shift = static_cast<T>(mean);
  sums = {};
  each_piece([&](const T* piece, std::int64_t count) {
    add_sums<T>(
        count, [=](std::int64_t i) { return (piece[i] - shift) * (piece[i] - shift); },
        [=](std::int64_t i) { return piece[i] - shift; }, sums);
  });
  const double rest = sums.second / n;
  return {mean, sums.first / n - rest * rest};
}

/// One part of one sample on its way forward.
template <typename T>
struct NormedPart {
  NormedParts of;
  const T* x;
  const T* w;
  const T* b;
  double mean = 0;
  double inverse = 0;  // 1 / deviation

  Affine<T> affine(std::int64_t k) const { return affine_of(w[k], b[k], mean, inverse); }

  void normalise(bool relu, T* __restrict y) const {
    if (of.places > 1) {
      for (std::int64_t k = 0; k < of.channels; ++k) {
        const T* plane = x + k * of.places;
        T* out = y + k * of.places;
        const Affine<T> rule = affine(k);
        if (relu) {
          normalise_relu(plane, rule, of.places, out);
        } else {
          for (std::int64_t i = 0; i < of.places; ++i) out[i] = rule(plane[i]);
        }
      }
      return;
    }
    const T centre = static_cast<T>(mean);
    const T factor = static_cast<T>(inverse);
    for (std::int64_t k = 0; k < of.channels; ++k) y[k] = (x[k] - centre) * factor * w[k] + b[k];
    if (!relu) return;
    for (std::int64_t k = 0; k < of.channels; ++k) y[k] = y[k] < T{0} ? T{0} : y[k];
  }
};

/// The way back through one part. The gradients of w and b are summed in float64.
template <typename T>
struct PartGradients {
  const NormedPart<T>& part;
  const T* g;  // of y
  T* dx;       // null: not wanted
  double* dw;  // of the part's channels
  double* db;

  template <bool kRelu>
  void by_channels() const {
    const NormedParts& of = part.of;
    double sum = 0;
    double product = 0;  // with x - mean
    const auto channel = [&](std::int64_t k) {
      const std::int64_t first = k * of.places;
      return ChannelGradient<T>{.x = {part.x + first, 0, 1, of.places},
                                .g = {g + first, 0, 1, of.places},
                                .affine = part.affine(k),
                                .mean = static_cast<T>(part.mean)};
    };
    for (std::int64_t k = 0; k < of.channels; ++k) {
      const TwoSums sums = channel(k).template sums<kRelu>();
      db[k] += sums.first;
      dw[k] += sums.second * part.inverse;
      sum += static_cast<double>(part.w[k]) * sums.first;
      product += static_cast<double>(part.w[k]) * sums.second;
    }
    if (dx == nullptr) return;
    InputGradient<T> rule = rule_of(sum, product);
    for (std::int64_t k = 0; k < of.channels; ++k) {
      rule.scale = static_cast<T>(part.inverse * static_cast<double>(part.w[k]));
      channel(k).template input_gradient<kRelu>(rule, {dx + k * of.places, 0, 1, of.places});
    }
  }

  template <bool kRelu>
  void by_values() const {
    const std::int64_t length = part.of.channels;
    const T mean = static_cast<T>(part.mean);
    const T inverse = static_cast<T>(part.inverse);
    const T* __restrict x = part.x;
    const T* __restrict w = part.w;
    const auto through = [&](std::int64_t k) {
      return !kRelu || (x[k] - mean) * inverse * w[k] + part.b[k] > T{0} ? g[k] : T{0};
    };
    TwoSums sums;
    for (std::int64_t first = 0; first < length; first += kPiece) {
      const auto one = [&](std::int64_t i) { return w[first + i] * through(first + i); };
      add_sums<T>(
          std::min(kPiece, length - first), one,
          [&](std::int64_t i) { return one(i) * (x[first + i] - mean); }, sums);
    }
    for (std::int64_t k = 0; k < length; ++k) {
      const T gradient = through(k);
      db[k] += static_cast<double>(gradient);
      dw[k] += static_cast<double>(gradient * ((x[k] - mean) * inverse));
    }
    if (dx == nullptr) return;
    const InputGradient<T> rule = rule_of(sums.first, sums.second);
    for (std::int64_t k = 0; k < length; ++k) {
      dx[k] = inverse * w[k] * through(k) + rule.slope * x[k] + rule.offset;
    }
  }

 private:
  /// dx = inverse (w g - sum / n - xhat^2 product / (n (x - mean))), as scale g + slope x + offset.
  InputGradient<T> rule_of(double sum, double product) const {
    const auto n = static_cast<double>(part.of.values());
    const double slope = -std::pow(part.inverse, 3) * product / n;
    const double offset = -part.inverse * sum / n - slope * part.mean;
    return {T{0}, static_cast<T>(slope), static_cast<T>(offset)};
  }
};

}  // namespace fedhpc
