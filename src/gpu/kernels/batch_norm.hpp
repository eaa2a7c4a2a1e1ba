#pragma once

#include "fedhpc/models/device_kernels.hpp"

#include "gpu/kernels/moments.hpp"

// Batch norm, and ReLU and 2x2 max pooling after it, as models/batch_norm.cpp computes it: a group
// takes one channel of one client's batch. The way back is in batch_norm_gradient.hpp.

namespace fedhpc::kernels {

/// y = scale x + shift, as all passes compute it.
template <typename T>
struct Affine {
  T scale;
  T shift;

  FEDHPC_KERNEL T operator()(T x) const { return scale * x + shift; }
};

/// What both ways know of their norm.
template <typename T, int N>
struct NormShape {
  DeviceBatchNorm norm;
  Images<const T> x;
  Columns<T> parameters;
  Divisor channels;
  Divisor packs;    // of a plane
  Divisor windows;  // 2x2, also those beyond the last whole ones
  Divisor columns;  // of windows

  explicit NormShape(const DeviceBatchNorm& of)
      : norm(of),
        x(of.x, of.in.height * of.in.width),
        parameters(of.parameters),
        channels(of.in.channels),
        packs(of.in.height * of.in.width / N),
        windows(((of.in.height + 1) / 2) * ((of.in.width + 1) / 2)),
        columns((of.in.width + 1) / 2) {}

  FEDHPC_KERNEL std::int64_t places() const { return norm.in.height * norm.in.width; }
  FEDHPC_KERNEL double values() const { return static_cast<double>(norm.x.batch * places()); }
  /// Of a channel of what follows.
  static std::int64_t places_after(const DeviceBatchNorm& of) {
    const bool pools = of.then == Then::ReluMaxPool;
    return pools ? (of.in.height / 2) * (of.in.width / 2) : of.in.height * of.in.width;
  }
  FEDHPC_KERNEL bool relu() const { return norm.then == Then::Relu; }
  FEDHPC_KERNEL bool pools() const { return norm.then == Then::ReluMaxPool; }

  /// Calls work(b, place) for every pack of the channel that is this thread's.
  template <typename Group, typename Work>
  FEDHPC_KERNEL void each_pack(Group& group, Work&& work) const {
    const std::int64_t count = norm.x.batch * (places() / N);
    FEDHPC_UNROLL
    for (std::int64_t i = group.rank(); i < count; i += group.size()) {
      const Split at = packs(i);
      work(at.quotient, at.rest * N);
    }
  }

  /// Calls work(b, row, column) for every 2x2 window with places of the image in it, given by
  /// the number of its row and column.
  template <typename Group, typename Work>
  FEDHPC_KERNEL void each_window(Group& group, Work&& work) const {
    const std::int64_t count =
        norm.x.batch * (((norm.in.height + 1) / 2) * ((norm.in.width + 1) / 2));
    for (std::int64_t i = group.rank(); i < count; i += group.size()) {
      const Split at = windows(i);
      const Split window = columns(at.rest);
      work(at.quotient, window.quotient, window.rest);
    }
  }

  FEDHPC_KERNEL bool is_whole(std::int64_t row, std::int64_t column) const {
    return 2 * row + 1 < norm.in.height && 2 * column + 1 < norm.in.width;
  }

  /// gamma (x - mean) inverse_deviation + beta as one multiplication and addition.
  FEDHPC_KERNEL static Affine<T> affine(T gamma, T beta, double mean, double inverse_deviation) {
    const double scale = static_cast<double>(gamma) * inverse_deviation;
    return {static_cast<T>(scale), static_cast<T>(static_cast<double>(beta) - scale * mean)};
  }
};

template <typename T, int N>
struct BatchNormForward {
  NormShape<T, N> shape;
  Images<T> y;

  explicit BatchNormForward(const DeviceBatchNorm& of)
      : shape(of), y(of.y, NormShape<T, N>::places_after(of)) {}

  template <typename Group>
  FEDHPC_KERNEL void operator()(Group& group, std::int64_t g) const {
    const DeviceBatchNorm& norm = shape.norm;
    const Split at = shape.channels(g);
    const std::int64_t c = at.quotient;
    const std::int64_t k = norm.in.channels;
    T* row = shape.parameters(c) + at.rest;
    const Moments of =
        norm.training ? moments(group, c, at.rest)
                      : Moments{static_cast<double>(row[2 * k]), static_cast<double>(row[3 * k])};
    const double inverse = 1 / std::sqrt(of.variance + norm.epsilon);
    if (norm.training && group.rank() == 0) {
      const double n = shape.values();
      row[2 * k] = moved(row[2 * k], of.mean);
      row[3 * k] = moved(row[3 * k], of.variance * n / (n - 1));
      if (norm.saved != nullptr) {
        norm.saved[c * 2 * k + at.rest] = of.mean;
        norm.saved[(c * 2 + 1) * k + at.rest] = inverse;
      }
    }
    const Affine<T> affine = NormShape<T, N>::affine(row[0], row[k], of.mean, inverse);
    if (shape.pools()) {
      pool(group, c, at.rest, affine);
    } else {
      normalise(group, c, at.rest, affine);
    }
  }

 private:
  FEDHPC_KERNEL T moved(T running, double batch) const {
    const double m = shape.norm.momentum;
    return static_cast<T>((1 - m) * static_cast<double>(running) + m * batch);
  }

  template <typename Group>
  FEDHPC_KERNEL Moments moments(Group& group, std::int64_t c, std::int64_t channel) const {
    const auto& of = shape;
    return moments_of<T, N>(group, of.norm.x.batch * (of.places() / N),
                            [&of, c, channel](std::int64_t i) {
                              const Split at = of.packs(i);
                              return load<T, N>(of.x(c, at.quotient, channel) + at.rest * N);
                            });
  }

  template <typename Group>
  FEDHPC_KERNEL void normalise(Group& group, std::int64_t c, std::int64_t channel,
                               const Affine<T>& affine) const {
    const auto& x = shape.x;
    const auto& out = y;
    const bool relu = shape.relu();
    shape.each_pack(group, [&](std::int64_t b, std::int64_t place) {
      Pack<T, N> pack = load<T, N>(x(c, b, channel) + place);
      for (T& value : pack.value) {
        value = affine(value);
        if (relu) value = value < T{0} ? T{0} : value;
      }
      store(out(c, b, channel) + place, pack);
    });
  }

  template <typename Group>
  FEDHPC_KERNEL void pool(Group& group, std::int64_t c, std::int64_t channel,
                          const Affine<T>& affine) const {
    const std::int64_t width = shape.norm.in.width;
    const std::int64_t half = width / 2;
    const auto& of = shape;
    const auto& out = y;
    shape.each_window(group, [&](std::int64_t b, std::int64_t row, std::int64_t column) {
      if (!of.is_whole(row, column)) return;
      const T* top = of.x(c, b, channel) + 2 * row * width + 2 * column;
      // NaN stays: a diverged model must show.
      T value = affine(top[0]);
      value = larger_or_nan(value, affine(top[1]));
      value = larger_or_nan(value, affine(top[width]));
      value = larger_or_nan(value, affine(top[width + 1]));
      out(c, b, channel)[row * half + column] = value < T{0} ? T{0} : value;
    });
  }

  FEDHPC_KERNEL static T larger_or_nan(T a, T b) { return b > a || b != b ? b : a; }
};

}  // namespace fedhpc::kernels
