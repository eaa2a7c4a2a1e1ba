#pragma once

#include <cstdint>
#include <vector>

// Passes over one channel of one client's batch. The channel's B planes of H x W values are read
// again while they are in the cache.

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

/// The places of a 2x2 window.
template <typename T>
struct Four {
  T v[4];

  Four(const T* top, const T* bottom, std::int64_t o)
      : v{top[2 * o], top[2 * o + 1], bottom[2 * o], bottom[2 * o + 1]} {}
  Four(const Four& x, const Affine<T>& affine)
      : v{affine(x.v[0]), affine(x.v[1]), affine(x.v[2]), affine(x.v[3])} {}

  static T larger(T m, T value) { return (value > m) | (value != value) ? value : m; }
  T maximum() const { return larger(larger(larger(v[0], v[1]), v[2]), v[3]); }
  /// `values` where this holds `largest` first.
  T at_first(T largest, const Four& values) const {
    return v[0] == largest   ? values.v[0]
           : v[1] == largest ? values.v[1]
           : v[2] == largest ? values.v[2]
                             : values.v[3];
  }
};

/// y = max(affine(x), 0)
template <typename T>
void normalise_relu(const T* __restrict x, const Affine<T>& affine, std::int64_t places,
                    T* __restrict y) {
  for (std::int64_t i = 0; i < places; ++i) {
    const T value = affine(x[i]);
    y[i] = value < T{0} ? T{0} : value;
  }
}

/// One row of y = max over 2x2 windows of max(affine(x), 0).
template <typename T>
void normalise_relu_pool(const T* __restrict top, const T* __restrict bottom,
                         const Affine<T>& affine, std::int64_t width, T* __restrict y) {
  for (std::int64_t o = 0; o < width; ++o) {
    const T value = Four<T>(Four<T>(top, bottom, o), affine).maximum();
    y[o] = value < T{0} ? T{0} : value;
  }
}

/// What reaches the window's largest value through pooling and ReLU, and that value of x.
template <typename T>
void gradient_at_maximum(const T* __restrict top, const T* __restrict bottom,
                         const T* __restrict dy, const Affine<T>& affine, std::int64_t width,
                         T* __restrict gradient, T* __restrict x_there) {
  for (std::int64_t o = 0; o < width; ++o) {
    const Four<T> x(top, bottom, o);
    const Four<T> value(x, affine);
    const T largest = value.maximum();
    gradient[o] = largest > T{0} ? dy[o] : T{0};
    x_there[o] = value.at_first(largest, x);
  }
}

/// dx = scale g + slope x + offset.
template <typename T>
struct InputGradient {
  T scale;
  T slope;
  T offset;
};

/// One pair of rows of dx; g is gradient_at_maximum's, 0 beside the maximum.
template <typename T>
void input_gradient_of_pool(const T* __restrict top, const T* __restrict bottom,
                            const T* __restrict g, const Affine<T>& affine,
                            const InputGradient<T>& rule, std::int64_t width, T* __restrict dx_top,
                            T* __restrict dx_bottom) {
  for (std::int64_t o = 0; o < width; ++o) {
    const Four<T> x(top, bottom, o);
    const Four<T> value(x, affine);
    const T largest = value.maximum();
    const T reached = rule.scale * g[o];
    const T first = value.v[0] == largest ? reached : T{0};
    const T second = value.v[0] == largest ? T{0} : value.v[1] == largest ? reached : T{0};
    const T upper = first + second;  // nothing, unless the maximum is in the upper row
    const bool above = (value.v[0] == largest) | (value.v[1] == largest);
    const T third = above ? T{0} : value.v[2] == largest ? reached : T{0};
    const T fourth = reached - upper - third;
    dx_top[2 * o] = rule.slope * x.v[0] + rule.offset + first;
    dx_top[2 * o + 1] = rule.slope * x.v[1] + rule.offset + second;
    dx_bottom[2 * o] = rule.slope * x.v[2] + rule.offset + third;
    dx_bottom[2 * o + 1] = rule.slope * x.v[3] + rule.offset + fourth;
  }
}

}  // namespace fedhpc
