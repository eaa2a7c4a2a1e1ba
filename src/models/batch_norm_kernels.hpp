#pragma once

#include <cstdint>

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
    value = (b > value) | (b != b) ? b : value;
    value = (c > value) | (c != c) ? c : value;
    value = (d > value) | (d != d) ? d : value;
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

}  // namespace fedhpc
