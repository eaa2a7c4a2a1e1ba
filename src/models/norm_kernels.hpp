#pragma once

#include <cmath>
#include <cstdint>

#include "fedhpc/models/layer.hpp"

// Passes over one channel of one client's batch (batch norm) or of one sample (group norm). The
// channel's planes of H x W values are read again while they are in the cache.

namespace fedhpc {

/// One channel of a batch: B planes of `places` values each, `stride` values apart.
template <typename T>
struct Planes {
  T* data = nullptr;
  std::int64_t stride = 0;
  std::int64_t batch = 0;
  std::int64_t places = 0;

  T* operator[](std::int64_t b) const { return data + b * stride; }
  double values() const { return static_cast<double>(batch * places); }
};

struct TwoSums {
  double first = 0;
  double second = 0;
};

/// Adds first(i) and second(i) for i = 0..length-1: in T within 16 lanes, the lanes in float64.
template <typename T, typename First, typename Second>
void add_sums(std::int64_t length, First&& first, Second&& second, TwoSums& sums) {
  constexpr std::int64_t kLanes = 16;
  T one[kLanes] = {};
  T two[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= length; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      one[lane] += first(i + lane);
      two[lane] += second(i + lane);
    }
  }
  for (std::int64_t lane = 0; i < length; ++i, ++lane) {
    one[lane] += first(i);
    two[lane] += second(i);
  }
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    sums.first += static_cast<double>(one[lane]);
    sums.second += static_cast<double>(two[lane]);
  }
}

struct Moments {
  double mean = 0;
  double variance = 0;  // sum of squares / n
};

template <typename T>
Moments moments(const Planes<const T>& x) {
  TwoSums sums;
  const auto nothing = [](std::int64_t) { return T{0}; };
  for (std::int64_t b = 0; b < x.batch; ++b) {
    const T* plane = x[b];
    add_sums<T>(
        x.places, [plane](std::int64_t i) { return plane[i]; }, nothing, sums);
  }
  const double mean = sums.first / x.values();
  const T shift = static_cast<T>(mean);
  sums = {};
  for (std::int64_t b = 0; b < x.batch; ++b) {
    const T* plane = x[b];
    add_sums<T>(
        x.places, [=](std::int64_t i) { return (plane[i] - shift) * (plane[i] - shift); },
        [=](std::int64_t i) { return plane[i] - shift; }, sums);
  }
  // The second sum is what rounding the mean to T has left.
  const double rest = sums.second / x.values();
  return {mean, sums.first / x.values() - rest * rest};
}

/// y = scale x + shift, as all passes compute it.
template <typename T>
struct Affine {
  T scale;
  T shift;

  T operator()(T x) const { return scale * x + shift; }
};

/// gamma (x - mean) inverse_deviation + beta as one multiplication and addition.
template <typename T>
Affine<T> affine_of(T gamma, T beta, double mean, double inverse_deviation) {
  const double scale = static_cast<double>(gamma) * inverse_deviation;
  return {static_cast<T>(scale), static_cast<T>(static_cast<double>(beta) - scale * mean)};
}

/// y = max(affine(x), 0)
template <typename T>
void normalise_relu(const T* __restrict x, Affine<T> affine, std::int64_t places, T* __restrict y) {
  for (std::int64_t i = 0; i < places; ++i) {
    const T value = affine(x[i]);
    y[i] = value < T{0} ? T{0} : value;
  }
}

/// One row of y = max over 2x2 windows of max(affine(x), 0).
template <typename T>
void normalise_relu_pool(const T* __restrict top, const T* __restrict bottom, Affine<T> affine,
                         std::int64_t width, T* __restrict y) {
  for (std::int64_t o = 0; o < width; ++o) {
    const T a = affine.scale * top[2 * o] + affine.shift;
    const T b = affine.scale * top[2 * o + 1] + affine.shift;
    const T c = affine.scale * bottom[2 * o] + affine.shift;
    const T d = affine.scale * bottom[2 * o + 1] + affine.shift;
    // NaN stays: a diverged model must show.
    T value = a;
    value = ((b > value) | (b != b)) ? b : value;
    value = ((c > value) | (c != c)) ? c : value;
    value = ((d > value) | (d != d)) ? d : value;
    y[o] = value < T{0} ? T{0} : value;
  }
}

/// Goes back through normalise_relu_pool: the gradient reaches the first of a window's largest
/// values, 0 the others and all where nothing is above 0. Gradients are parted by subtraction (g -
/// g or g - 0, both exact), so that the loop has no branch.
template <typename T>
void unpool(const T* __restrict top, const T* __restrict bottom, const T* __restrict dy,
            Affine<T> affine, std::int64_t width, T* __restrict g_top, T* __restrict g_bottom) {
  for (std::int64_t o = 0; o < width; ++o) {
    const T a = affine(top[2 * o]);
    const T b = affine(top[2 * o + 1]);
    const T c = affine(bottom[2 * o]);
    const T d = affine(bottom[2 * o + 1]);
    const T upper = a > b ? a : b;
    const T lower = c > d ? c : d;
    const T largest = upper > lower ? upper : lower;
    const T gradient = dy[o];
    const T through = largest > T{0} ? gradient : T{0};
    const T above = lower > upper ? T{0} : through;
    const T below = through - above;
    const T first = b > a ? T{0} : above;
    const T third = d > c ? T{0} : below;
    g_top[2 * o] = first;
    g_top[2 * o + 1] = above - first;
    g_bottom[2 * o] = third;
    g_bottom[2 * o + 1] = below - third;
  }
}

/// dx = scale g + slope x + offset.
template <typename T>
struct InputGradient {
  T scale;
  T slope;
  T offset;
};

/// What backward needs to know of one channel of one client: x and the gradient g of
/// ReLU(affine(x)), or of affine(x) itself.
template <typename T>
struct ChannelGradient {
  Planes<const T> x;
  Planes<const T> g;
  Affine<T> affine;
  T mean;

  template <bool kRelu>
  T masked(T x_value, T gradient) const {
    return !kRelu || affine(x_value) > T{0} ? gradient : T{0};
  }

  /// The sums of g and g (x - mean), after ReLU's way back.
  template <bool kRelu>
  TwoSums sums() const {
    TwoSums total;
    for (std::int64_t b = 0; b < x.batch; ++b) {
      const T* plane = x[b];
      const T* gradient = g[b];
      const auto one = [&](std::int64_t i) { return masked<kRelu>(plane[i], gradient[i]); };
      add_sums<T>(
          x.places, one, [&](std::int64_t i) { return one(i) * (plane[i] - mean); }, total);
    }
    return total;
  }

  template <bool kRelu>
  void input_gradient(const InputGradient<T>& rule, const Planes<T>& dx) const {
    for (std::int64_t b = 0; b < x.batch; ++b) {
      const T* __restrict plane = x[b];
      const T* __restrict gradient = g[b];
      T* __restrict out = dx[b];
      for (std::int64_t i = 0; i < x.places; ++i) {
        const T value = gradient[i];
        // Spelled out, since a compiler may contract either product.
        out[i] = std::fma(rule.scale, masked<kRelu>(plane[i], value), rule.slope * plane[i]) +
                 rule.offset;
      }
    }
  }
};

template <typename T>
void sink_value(double gradient, const GradientSink& sink, T& out) {
  const double kept = sink.keep == 0 ? 0 : sink.keep * static_cast<double>(out);
  out = static_cast<T>(kept + sink.scale * gradient);
}

}  // namespace fedhpc
