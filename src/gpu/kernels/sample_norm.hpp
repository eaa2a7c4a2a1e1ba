#pragma once

#include "fedhpc/models/device_kernels.hpp"

#include "gpu/kernels/moments.hpp"

// Norms of parts of samples, and a ReLU after them, as models/sample_norm.cpp computes them. A group
// takes one part of one sample, and on the way back then one parameter of one client.

namespace fedhpc::kernels {

/// y = (x - mean) / deviation w + b of one channel of one part, as all passes compute it.
template <typename T>
struct NormRule {
  T mean;
  T inverse;  // 1 / deviation
  T w;
  T b;
  bool relu;

  FEDHPC_KERNEL T normal(T x) const { return (x - mean) * inverse; }
  FEDHPC_KERNEL T operator()(T x) const {
    const T y = normal(x) * w + b;
    return relu && y < T{0} ? T{0} : y;
  }
  /// The gradient before ReLU's way back.
  FEDHPC_KERNEL T masked(T x, T gradient) const {
    return !relu || normal(x) * w + b > T{0} ? gradient : T{0};
  }
};

/// What all passes know of their norm; N divides the places.
template <typename T, int N>
struct PartShape {
  DeviceSampleNorm norm;
  Images<const T> x;
  Columns<const T> weight;
  Columns<const T> bias;
  Samples<double> mean;
  Samples<double> inverse;
  Divisor groups;
  Divisor batch;
  Divisor packs;  // of a plane

  explicit PartShape(const DeviceSampleNorm& of)
      : norm(of),
        x(of.x, of.places),
        weight(of.weight),
        bias(of.bias),
        mean(of.mean),
        inverse(of.inverse),
        groups(of.groups),
        batch(of.x.batch),
        packs(of.places / N) {}

  /// The packs of a part.
  FEDHPC_KERNEL std::int64_t count() const { return norm.channels * (norm.places / N); }
  FEDHPC_KERNEL double values() const { return static_cast<double>(norm.channels * norm.places); }

  struct Part {
    std::int64_t client;
    std::int64_t sample;
    std::int64_t number;
  };
  FEDHPC_KERNEL Part part(std::int64_t g) const {
    const Split by_group = groups(g);
    const Split by_sample = batch(by_group.quotient);
    return {by_sample.quotient, by_sample.rest, by_group.rest};
  }

  /// The number of a channel's parameters.
  FEDHPC_KERNEL std::int64_t parameter(std::int64_t part, std::int64_t channel) const {
    return (norm.shared ? 0 : part * norm.channels) + channel;
  }
  FEDHPC_KERNEL NormRule<T> rule(std::int64_t c, std::int64_t k, double of_mean,
                                 double of_inverse) const {
    return {static_cast<T>(of_mean), static_cast<T>(of_inverse),
            weight.data == nullptr ? T{1} : weight(c)[k], bias.data == nullptr ? T{0} : bias(c)[k],
            norm.relu};
  }
  /// That of a part that has been normalised.
  FEDHPC_KERNEL NormRule<T> saved_rule(const Part& at, std::int64_t k) const {
    return rule(at.client, k, mean(at.client, at.sample)[at.number],
                inverse(at.client, at.sample)[at.number]);
  }
};

template <typename T, int N>
struct SampleNormForward {
  PartShape<T, N> parts;
  Images<T> y;

  explicit SampleNormForward(const DeviceSampleNorm& of) : parts(of), y(of.y, of.places) {}

  template <typename Group>
  FEDHPC_KERNEL void operator()(Group& group, std::int64_t g) const {
    const auto at = parts.part(g);
    const auto& all = parts;
    const std::int64_t first = at.number * all.norm.channels;
    const Moments of = moments_of<T, N>(group, all.count(), [&](std::int64_t i) {
      const Split place = all.packs(i);
      return load<T, N>(all.x(at.client, at.sample, first + place.quotient) + place.rest * N);
    });
    const double inverse = 1 / std::sqrt(of.variance + all.norm.epsilon);
    if (all.mean.data != nullptr && group.rank() == 0) {
      all.mean(at.client, at.sample)[at.number] = of.mean;
      all.inverse(at.client, at.sample)[at.number] = inverse;
    }
    FEDHPC_UNROLL
    for (std::int64_t i = group.rank(); i < all.count(); i += group.size()) {
      const Split place = all.packs(i);
      const NormRule<T> rule =
          all.rule(at.client, all.parameter(at.number, place.quotient), of.mean, inverse);
      const std::int64_t channel = first + place.quotient;
      Pack<T, N> pack = load<T, N>(all.x(at.client, at.sample, channel) + place.rest * N);
      for (T& value : pack.value) value = rule(value);
      store(y(at.client, at.sample, channel) + place.rest * N, pack);
    }
  }
};

/// The input's gradient.
template <typename T, int N>
struct SampleNormBackward {
  PartShape<T, N> parts;
  Images<const T> dy;
  Images<T> dx;

  explicit SampleNormBackward(const DeviceSampleNormGradient& of)
      : parts(of.norm), dy(of.norm.y, of.norm.places), dx(of.dx, of.norm.places) {}

  template <typename Group>
  FEDHPC_KERNEL void operator()(Group& group, std::int64_t g) const {
    const auto at = parts.part(g);
    const double mean = parts.mean(at.client, at.sample)[at.number];
    const double inverse = parts.inverse(at.client, at.sample)[at.number];
    TwoSums own;  // of w g, and of w g (x - mean)
    each_pack(group, at, mean, inverse,
              [&](const NormRule<T>& rule, const Pack<T, N>& x, Pack<T, N>& gradient, std::int64_t,
                  std::int64_t) {
                T sum{0};
                T with_x{0};
                for (int k = 0; k < N; ++k) {
                  const T one = rule.w * rule.masked(x.value[k], gradient.value[k]);
                  sum += one;
                  with_x += one * (x.value[k] - rule.mean);
                }
                own.first += static_cast<double>(sum);
                own.second += static_cast<double>(with_x);
              });
    const TwoSums sums = group.sum(own);
    // dx = inverse (w g - sum / n - (x - mean) inverse^2 product / n)
    const double n = parts.values();
    const double by_distance = -inverse * inverse * inverse * sums.second / n;
    // What rounding the mean to T has left.
    const double rest = mean - static_cast<double>(static_cast<T>(mean));
    const T slope = static_cast<T>(by_distance);
    const T offset = static_cast<T>(-inverse * sums.first / n - by_distance * rest);
    each_pack(group, at, mean, inverse,
              [&](const NormRule<T>& rule, const Pack<T, N>& x, Pack<T, N>& gradient,
                  std::int64_t channel, std::int64_t place) {
                for (int k = 0; k < N; ++k) {
                  gradient.value[k] =
                      rule.inverse * (rule.w * rule.masked(x.value[k], gradient.value[k])) +
                      slope * (x.value[k] - rule.mean) + offset;
                }
                store(dx(at.client, at.sample, channel) + place, gradient);
              });
  }

 private:
  /// Calls work(rule, x, dy, channel of the sample, place) for every pack that is this thread's.
  template <typename Group, typename Work>
  FEDHPC_KERNEL void each_pack(Group& group, const typename PartShape<T, N>::Part& at, double mean,
                               double inverse, Work&& work) const {
    FEDHPC_UNROLL
    for (std::int64_t i = group.rank(); i < parts.count(); i += group.size()) {
      const Split plane = parts.packs(i);
      const std::int64_t channel = at.number * parts.norm.channels + plane.quotient;
      const std::int64_t place = plane.rest * N;
      Pack<T, N> gradient = load<T, N>(dy(at.client, at.sample, channel) + place);
      const std::int64_t parameter = parts.parameter(at.number, plane.quotient);
      work(parts.rule(at.client, parameter, mean, inverse),
           load<T, N>(parts.x(at.client, at.sample, channel) + place), gradient, channel, place);
    }
  }
};

}  // namespace fedhpc::kernels
