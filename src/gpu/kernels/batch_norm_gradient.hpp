#pragma once

#include "fedhpc/models/device_kernels.hpp"

#include "gpu/kernels/batch_norm.hpp"

// The way back through batch norm, ReLU and 2x2 max pooling.

namespace fedhpc::kernels {

template <typename T, int N>
struct BatchNormBackward {
  NormShape<T, N> shape;
  Images<const T> dy;
  Images<T> dx;
  SumSink<T> sink;

  explicit BatchNormBackward(const DeviceBatchNormGradient& of)
      : shape(of.norm),
        dy(of.norm.y, NormShape<T, N>::places_after(of.norm)),
        dx(of.dx, of.norm.in.height * of.norm.in.width),
        sink(of.sink) {}

  /// dx = scale g + slope x + offset
  struct Rule {
    T scale;
    T slope;
    T offset;
  };

  template <typename Group>
  FEDHPC_KERNEL void operator()(Group& group, std::int64_t g) const {
    const Split at = shape.channels(g);
    const std::int64_t c = at.quotient;
    const std::int64_t k = shape.norm.in.channels;
    const T* row = shape.parameters(c) + at.rest;
    const T gamma = row[0];  // read before the sink, which may be the parameters themselves, writes
    const double mean = shape.norm.saved[c * 2 * k + at.rest];
    const double inverse = shape.norm.saved[(c * 2 + 1) * k + at.rest];
    const Affine<T> affine = NormShape<T, N>::affine(gamma, row[k], mean, inverse);
    const TwoSums sums = shape.pools()
                             ? pooled_sums(group, c, at.rest, affine, static_cast<T>(mean))
                             : plain_sums(group, c, at.rest, affine, static_cast<T>(mean));
    const double dbeta = sums.first;
    const double dgamma = sums.second * inverse;
    if (dx.data != nullptr) {
      // dx = gamma inverse (g - dbeta / n - xhat dgamma / n), xhat = (x - mean) inverse
      const double n = shape.values();
      const double scale = static_cast<double>(gamma) * inverse;
      const double slope = -scale * inverse * dgamma / n;
      const double offset = -scale * dbeta / n - slope * mean;
      const Rule rule{static_cast<T>(scale), static_cast<T>(slope), static_cast<T>(offset)};
      shape.pools() ? pooled_gradient(group, c, at.rest, affine, rule)
                    : plain_gradient(group, c, at.rest, affine, rule);
    }
    if (group.rank() > 0) return;
    sink.write(dgamma, c, at.rest);
    sink.write(dbeta, c, at.rest + k);
  }

 private:
  /// The gradient before ReLU's way back.
  FEDHPC_KERNEL T masked(const Affine<T>& affine, T x, T gradient) const {
    return !shape.relu() || affine(x) > T{0} ? gradient : T{0};
  }

  template <typename Group>
  FEDHPC_KERNEL TwoSums plain_sums(Group& group, std::int64_t c, std::int64_t channel,
                                   const Affine<T>& affine, T mean) const {
    const auto& of = *this;
    TwoSums parts;
    shape.each_pack(group, [&](std::int64_t b, std::int64_t place) {
      const Pack<T, N> x = load<T, N>(of.shape.x(c, b, channel) + place);
      const Pack<T, N> gradient = load<T, N>(of.dy(c, b, channel) + place);
      T sum{0};
      T with_x{0};
      for (int i = 0; i < N; ++i) {
        const T one = of.masked(affine, x.value[i], gradient.value[i]);
        sum += one;
        with_x += one * (x.value[i] - mean);
      }
      parts.first += static_cast<double>(sum);
      parts.second += static_cast<double>(with_x);
    });
    return group.sum(parts);
  }

  template <typename Group>
  FEDHPC_KERNEL void plain_gradient(Group& group, std::int64_t c, std::int64_t channel,
                                    const Affine<T>& affine, const Rule& rule) const {
    const auto& of = *this;
    shape.each_pack(group, [&](std::int64_t b, std::int64_t place) {
      const Pack<T, N> x = load<T, N>(of.shape.x(c, b, channel) + place);
      Pack<T, N> g = load<T, N>(of.dy(c, b, channel) + place);
      for (int i = 0; i < N; ++i) {
        g.value[i] = rule.scale * of.masked(affine, x.value[i], g.value[i]) +
                     rule.slope * x.value[i] + rule.offset;
      }
      store(of.dx(c, b, channel) + place, g);
    });
  }

  /// The gradients of a window's values: what reaches the first of the largest, 0 at the others and
  /// where nothing is above 0.
  struct Window {
    T value[4];  // top left, top right, bottom left, bottom right
  };
  FEDHPC_KERNEL static Window unpooled(const Affine<T>& affine, const T* top, std::int64_t width,
                                       T gradient) {
    const T a = affine(top[0]);
    const T b = affine(top[1]);
    const T c = affine(top[width]);
    const T d = affine(top[width + 1]);
    const T upper = a > b ? a : b;
    const T lower = c > d ? c : d;
    const T largest = upper > lower ? upper : lower;
    const T through = largest > T{0} ? gradient : T{0};
    const T above = lower > upper ? T{0} : through;
    const T below = through - above;
    const T first = b > a ? T{0} : above;
    const T third = d > c ? T{0} : below;
    return {{first, above - first, third, below - third}};
  }

  FEDHPC_KERNEL T pooled(std::int64_t c, std::int64_t b, std::int64_t channel, std::int64_t row,
                         std::int64_t column) const {
    const std::int64_t half = shape.norm.in.width / 2;
    return dy(c, b, channel)[row * half + column];
  }

  template <typename Group>
  FEDHPC_KERNEL TwoSums pooled_sums(Group& group, std::int64_t c, std::int64_t channel,
                                    const Affine<T>& affine, T mean) const {
    const std::int64_t width = shape.norm.in.width;
    const auto& of = *this;
    TwoSums parts;
    shape.each_window(group, [&](std::int64_t b, std::int64_t row, std::int64_t column) {
      if (!of.shape.is_whole(row, column)) return;
      const T* top = of.shape.x(c, b, channel) + 2 * row * width + 2 * column;
      const Window g = unpooled(affine, top, width, of.pooled(c, b, channel, row, column));
      T sum{0};
      T with_x{0};
      for (int i = 0; i < 4; ++i) {
        sum += g.value[i];
        with_x += g.value[i] * (top[i / 2 * width + i % 2] - mean);
      }
      parts.first += static_cast<double>(sum);
      parts.second += static_cast<double>(with_x);
    });
    return group.sum(parts);
  }

  template <typename Group>
  FEDHPC_KERNEL void pooled_gradient(Group& group, std::int64_t c, std::int64_t channel,
                                     const Affine<T>& affine, const Rule& rule) const {
    const std::int64_t height = shape.norm.in.height;
    const std::int64_t width = shape.norm.in.width;
    const auto& of = *this;
    shape.each_window(group, [&](std::int64_t b, std::int64_t row, std::int64_t column) {
      const std::int64_t place = 2 * row * width + 2 * column;
      const T* top = of.shape.x(c, b, channel) + place;
      T* out = of.dx(c, b, channel) + place;
      const bool whole = of.shape.is_whole(row, column);
      const Window g =
          whole ? unpooled(affine, top, width, of.pooled(c, b, channel, row, column)) : Window{};
      for (int i = 0; i < 4; ++i) {
        const std::int64_t y = i / 2;
        const std::int64_t x = i % 2;
        if (2 * row + y >= height || 2 * column + x >= width) continue;
        const std::int64_t to = y * width + x;
        out[to] = rule.scale * g.value[i] + rule.slope * top[to] + rule.offset;
      }
    });
  }
};

}  // namespace fedhpc::kernels
