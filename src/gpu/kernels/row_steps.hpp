#pragma once

#include "fedhpc/training/device_kernels.hpp"

#include "gpu/kernels/kernel.hpp"

// Steps of row optimizers and the penalty's gradient: a group takes a stretch of one row, as far as
// it lies in one of some ranges of columns.

namespace fedhpc::kernels {

/// Columns of one group, a multiple of every pack.
constexpr std::int64_t kStretch = 4096;

/// The penalty's numbers in the weights' own type; a term of weight 0 is not looked at.
template <typename T>
struct PenaltyTerms {
  T mu;
  T gamma;
  T inverse_rho;
  Columns<const T> centre;

  explicit PenaltyTerms(const DevicePenalty& penalty)
      : mu(static_cast<T>(penalty.mu)),
        gamma(static_cast<T>(penalty.gamma)),
        inverse_rho(static_cast<T>(1 / penalty.rho)),
        centre(penalty.centre) {}

  template <int N>
  FEDHPC_KERNEL Pack<T, N> gradient(const Pack<T, N>& w, std::int64_t c, std::int64_t i) const {
    Pack<T, N> sum;
    for (T& value : sum.value) value = T{0};
    if (mu != T{0}) {
      const Pack<T, N> at = load<T, N>(centre(c) + i);
      for (int k = 0; k < N; ++k) sum.value[k] += mu * (w.value[k] - at.value[k]);
    }
    if (gamma != T{0}) {
      for (int k = 0; k < N; ++k) sum.value[k] += gamma * std::tanh(w.value[k] * inverse_rho);
    }
    return sum;
  }
};

/// The stretches of rows and the ranges, ascending, that may be touched. All rows that are taken
/// together lie equally within packs, but each may lie in another way than the row before.
struct Stretches {
  const Range* ranges;
  std::int64_t range_count;
  std::int64_t columns;
  Divisor per_row;
  std::int64_t first_place;  // of row 0 in its pack
  std::int64_t row_stride;

  Stretches(const Range* first, std::int64_t count, std::int64_t row_columns, std::int64_t place,
            std::int64_t stride)
      : ranges(first),
        range_count(count),
        columns(row_columns),
        per_row(count_of(row_columns)),
        first_place(place),
        row_stride(stride) {}

  static std::int64_t count_of(std::int64_t row_columns) {
    return (row_columns + kStretch - 1) / kStretch;
  }

  /// Calls wide(i) for packs of N columns that lie in a range as a whole, and narrow(i) for the
  /// other columns of ranges, in the stretch of row c that begins at column `begin`.
  template <int N, typename Group, typename Wide, typename Narrow>
  FEDHPC_KERNEL void each(Group& group, std::int64_t c, std::int64_t begin, Wide&& wide,
                          Narrow&& narrow) const {
    const std::int64_t before = (first_place + c * row_stride) & (N - 1);  // columns in its pack
    const std::int64_t end = smaller(begin + kStretch, columns);
    for (std::int64_t r = first_range(begin); r < range_count; ++r) {
      const Range range = ranges[r];
      if (range.first >= end) return;
      const std::int64_t low = larger(range.first, begin);
      const std::int64_t high = smaller(range.last, end);
      for (std::int64_t i = (low + before) / N + group.rank(); i * N - before < high;
           i += group.size()) {
        const std::int64_t first = i * N - before;
        if (N == 1 || (low <= first && first + N <= high)) {
          wide(first);
        } else {
          const std::int64_t last = smaller(first + N, high);
          for (std::int64_t j = larger(first, low); j < last; ++j) narrow(j);
        }
      }
    }
  }

 private:
  /// The first range that ends beyond this column.
  FEDHPC_KERNEL std::int64_t first_range(std::int64_t column) const {
    std::int64_t low = 0;
    std::int64_t high = range_count;
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      if (ranges[middle].last > column) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }
};

struct Adam {  // as RowOptimizer has it
  static constexpr double kBeta1 = 0.9;
  static constexpr double kBeta2 = 0.999;
  static constexpr double kEpsilon = 1e-8;
};

struct CountAdam {
  std::int64_t* steps;
  double* corrections;

  FEDHPC_KERNEL void operator()(std::int64_t c) const {
    const auto next = static_cast<double>(++steps[c] + 1);
    corrections[2 * c] = 1 - std::pow(Adam::kBeta1, next);
    corrections[2 * c + 1] = 1 / std::sqrt(1 - std::pow(Adam::kBeta2, next));
  }
};

template <typename T, int N, OptimizerKind kRule>
struct Step {
  Stretches stretches;
  Columns<T> w;
  Columns<const T> g;
  Columns<T> first_state;
  Columns<T> second_state;
  const double* lr;
  T momentum;
  T decay;
  PenaltyTerms<T> penalty;
  const double* corrections;

  Step(const DeviceStep& of, std::int64_t first_place)
      : stretches(of.ranges, of.range_count, of.columns, first_place, of.w.stride),
        w(of.w),
        g(of.g),
        first_state(of.states[0]),
        second_state(of.states[1]),
        lr(of.lr),
        momentum(static_cast<T>(of.momentum)),
        decay(static_cast<T>(of.weight_decay)),
        penalty(of.penalty),
        corrections(of.corrections) {}

  /// The learning rate, and for Adam the corrections for the number of steps.
  struct Rates {
    T rate;
    T root;
  };

  template <typename Group>
  FEDHPC_KERNEL void operator()(Group& group, std::int64_t i) const {
    const Split at = stretches.per_row(i);
    const Rates rates = rates_of(at.quotient);
    const auto& of = *this;
    const std::int64_t c = at.quotient;
    stretches.each<N>(
        group, c, at.rest * kStretch,
        [&](std::int64_t column) { of.template move<N>(c, column, rates); },
        [&](std::int64_t column) { of.template move<1>(c, column, rates); });
  }

 private:
  FEDHPC_KERNEL Rates rates_of(std::int64_t c) const {
    const T rate = static_cast<T>(*lr);
    if constexpr (kRule != OptimizerKind::Adam) return {rate, T{1}};
    const double* of_row = corrections + 2 * c;
    return {static_cast<T>(static_cast<double>(rate) / of_row[0]), static_cast<T>(of_row[1])};
  }

  template <int M>
  FEDHPC_KERNEL void move(std::int64_t c, std::int64_t i, const Rates& rates) const {
    T* place = w(c) + i;
    Pack<T, M> weights = load<T, M>(place);
    Pack<T, M> d = penalty.template gradient<M>(weights, c, i);
    if (g.data != nullptr) {
      const Pack<T, M> gradient = load<T, M>(g(c) + i);
      for (int k = 0; k < M; ++k) d.value[k] += gradient.value[k];
    }
    for (int k = 0; k < M; ++k) d.value[k] += decay * weights.value[k];
    if constexpr (kRule == OptimizerKind::Sgd) {
      for (int k = 0; k < M; ++k) weights.value[k] -= rates.rate * d.value[k];
    } else if constexpr (kRule == OptimizerKind::Adam) {
      adam(c, i, rates, d, weights);
    } else {
      Pack<T, M> v = load<T, M>(first_state(c) + i);
      for (int k = 0; k < M; ++k) {
        v.value[k] = momentum * v.value[k] + d.value[k];
        const T step =
            kRule == OptimizerKind::Momentum ? v.value[k] : d.value[k] + momentum * v.value[k];
        weights.value[k] -= rates.rate * step;
      }
      store(first_state(c) + i, v);
    }
    store(place, weights);
  }

  template <int M>
  FEDHPC_KERNEL void adam(std::int64_t c, std::int64_t i, const Rates& rates, const Pack<T, M>& d,
                          Pack<T, M>& weights) const {
    constexpr T kFirst = static_cast<T>(Adam::kBeta1);
    constexpr T kSecond = static_cast<T>(Adam::kBeta2);
    constexpr T kFirstRest = static_cast<T>(1 - Adam::kBeta1);
    constexpr T kSecondRest = static_cast<T>(1 - Adam::kBeta2);
    Pack<T, M> m = load<T, M>(first_state(c) + i);
    Pack<T, M> s = load<T, M>(second_state(c) + i);
    for (int k = 0; k < M; ++k) {
      m.value[k] = kFirst * m.value[k] + kFirstRest * d.value[k];
      s.value[k] = kSecond * s.value[k] + kSecondRest * d.value[k] * d.value[k];
      weights.value[k] -= rates.rate * m.value[k] /
                          (std::sqrt(s.value[k]) * rates.root + static_cast<T>(Adam::kEpsilon));
    }
    store(first_state(c) + i, m);
    store(second_state(c) + i, s);
  }
};

template <typename T, int N>
struct PenaltyGradient {
  Stretches stretches;
  Columns<T> g;
  Columns<const T> w;
  PenaltyTerms<T> penalty;

  PenaltyGradient(const DevicePenaltyGradient& of, std::int64_t first_place)
      : stretches(of.ranges, of.range_count, of.columns, first_place, of.w.stride),
        g(of.g),
        w(of.w),
        penalty(of.penalty) {}

  template <typename Group>
  FEDHPC_KERNEL void operator()(Group& group, std::int64_t i) const {
    const Split at = stretches.per_row(i);
    const auto& of = *this;
    const std::int64_t c = at.quotient;
    stretches.each<N>(
        group, c, at.rest * kStretch, [&](std::int64_t column) { of.template add<N>(c, column); },
        [&](std::int64_t column) { of.template add<1>(c, column); });
  }

 private:
  template <int M>
  FEDHPC_KERNEL void add(std::int64_t c, std::int64_t i) const {
    Pack<T, M> gradient = load<T, M>(g(c) + i);
    const Pack<T, M> more = penalty.template gradient<M>(load<T, M>(w(c) + i), c, i);
    for (int k = 0; k < M; ++k) gradient.value[k] += more.value[k];
    store(g(c) + i, gradient);
  }
};

}  // namespace fedhpc::kernels
