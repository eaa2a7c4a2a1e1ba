#pragma once

#include "fedhpc/math/device_kernels.hpp"

#include "gpu/kernels/kernel.hpp"

// The steps of the network lasso (math/network_lasso.hpp), as math/network_tiles.hpp has them on the
// host. Columns are whole stripes, so that every pack lies within a row.

namespace fedhpc::kernels {

/// W of one coordinate of A by the number of its edge. What is not a number stays.
template <typename T, VectorNorm kNorm>
FEDHPC_KERNEL T shrunk(T a, T number) {
  if constexpr (kNorm == VectorNorm::Two) return number * a;
  const T below = a > number ? number : a;
  const T clipped = below < -number ? -number : below;
  return kNorm == VectorNorm::One ? a - clipped : clipped;
}

/// A network, typed.
template <typename T, VectorNorm kNorm>
struct Network {
  std::int64_t nodes;
  std::int64_t edges;
  std::int64_t stripes;
  std::int64_t columns;
  const std::int32_t* ends;
  const std::int32_t* joined;
  const std::int32_t* starts;
  const T* numbers;
  const T* z;
  const T* v;
  T* a;

  explicit Network(const DeviceNetwork& of)
      : nodes(of.nodes),
        edges(of.edges),
        stripes(of.stripes),
        columns(of.stripes * DeviceNetwork::kStripe),
        ends(of.ends),
        joined(of.joined),
        starts(of.starts),
        numbers(static_cast<const T*>(of.numbers)),
        z(static_cast<const T*>(of.z)),
        v(static_cast<const T*>(of.v)),
        a(static_cast<T*>(of.a)) {}

  /// Calls work(edge, whether the node is its first end, the node at the other end).
  template <typename Work>
  FEDHPC_KERNEL void each_edge(std::int64_t node, const Work& work) const {
    const std::int32_t last = starts[node + 1];
    for (std::int32_t e = starts[node]; e < last; ++e) {
      const std::int32_t edge = joined[2 * e];
      work(static_cast<std::int64_t>(edge < 0 ? -1 - edge : edge), edge >= 0,
           static_cast<std::int64_t>(joined[2 * e + 1]));
    }
  }
};

/// A pack of columns of one node.
template <typename T, int N, VectorNorm kNorm>
struct NetworkResiduals {
  Network<T, kNorm> network;
  T eta_rho;
  T* residuals;
  Divisor packs;  // of a row

  explicit NetworkResiduals(const DeviceNetworkResiduals& of)
      : network(of.of),
        eta_rho(static_cast<T>(of.eta_rho)),
        residuals(static_cast<T*>(of.residuals)),
        packs(network.columns / N) {}

  FEDHPC_KERNEL void operator()(std::int64_t i) const {
    const Split at = packs(i);
    const std::int64_t column = at.rest * N;
    const std::int64_t place = at.quotient * network.columns + column;
    const Pack<T, N> own = load<T, N>(network.z + place);
    Pack<T, N> sum;
    for (T& x : sum.value) x = T{0};
    const auto& of = network;
    of.each_edge(at.quotient, [&](std::int64_t edge, bool is_first, std::int64_t other) {
      const Pack<T, N> a = load<T, N>(of.a + edge * of.columns + column);
      const Pack<T, N> end = load<T, N>(of.z + other * of.columns + column);
      const T number = of.numbers[edge];
      for (int k = 0; k < N; ++k) {
        const T x = T{2} * shrunk<T, kNorm>(a.value[k], number) - a.value[k];
        sum.value[k] += (is_first ? x : -x) - (own.value[k] - end.value[k]);
      }
    });
    const Pack<T, N> v = load<T, N>(network.v + place);
    for (int k = 0; k < N; ++k) {
      sum.value[k] = v.value[k] - own.value[k] + eta_rho * sum.value[k];
    }
    store(residuals + place, sum);
  }
};

/// A team takes an edge's columns of one stripe.
template <typename T, VectorNorm kNorm>
struct NetworkDifferences {
  static constexpr std::int64_t kItems = 8;  // of a group
  static constexpr int kPair = 2;            // 32 lanes take a stripe at once
  static constexpr int kTerms = kNorm == VectorNorm::Infinity ? 2 : 1;

  Network<T, kNorm> network;
  bool stays;
  const double* levels;
  double* sums;
  Divisor by_edge;

  explicit NetworkDifferences(const DeviceNetworkDifferences& of)
      : network(of.of), stays(of.stays), levels(of.levels), sums(of.sums), by_edge(of.of.edges) {}

  static std::int64_t groups_of(const DeviceNetwork& of) {
    return (of.stripes * of.edges + kItems - 1) / kItems;
  }

  template <typename Group>
  FEDHPC_KERNEL void operator()(Group& group, std::int64_t g) const {
    const std::int64_t end = smaller((g + 1) * kItems, network.stripes * network.edges);
    for (std::int64_t item = g * kItems + group.team(); item < end; item += group.teams()) {
      const Split at = by_edge(item);
      take(group, at.rest, at.quotient);
    }
  }

 private:
  template <typename Group>
  FEDHPC_KERNEL void take(Group& group, std::int64_t edge, std::int64_t stripe) const {
    const std::int64_t begin = stripe * DeviceNetwork::kStripe;
    T* a = network.a + edge * network.columns + begin;
    const T* first = network.z + network.ends[2 * edge] * network.columns + begin;
    const T* second = network.z + network.ends[2 * edge + 1] * network.columns + begin;
    const T number = stays ? T{0} : network.numbers[edge];
    [[maybe_unused]] T level{0};
    if constexpr (kNorm == VectorNorm::Infinity) level = static_cast<T>(levels[edge]);
    [[maybe_unused]] double sum = 0;
    [[maybe_unused]] double above = 0;
    for (std::int64_t k = group.lane() * kPair; k < DeviceNetwork::kStripe;
         k += group.lanes() * kPair) {
      Pack<T, kPair> now = load<T, kPair>(a + k);
      if (!stays) {
        const Pack<T, kPair> x = load<T, kPair>(first + k);
        const Pack<T, kPair> y = load<T, kPair>(second + k);
        for (int i = 0; i < kPair; ++i) {
          const T before = now.value[i];
          now.value[i] = (x.value[i] - y.value[i]) + (before - shrunk<T, kNorm>(before, number));
        }
        store(a + k, now);
      }
      if constexpr (kNorm != VectorNorm::One) {
        for (const T value : now.value) {
          if constexpr (kNorm == VectorNorm::Two) {
            sum += static_cast<double>(value) * static_cast<double>(value);
          } else {
            const T beyond = (value < T{0} ? -value : value) - level;
            // What is not a number makes the sum none.
            if (!(beyond <= T{0})) sum += static_cast<double>(beyond);
            if (beyond > T{0}) above += 1;
          }
        }
      }
    }
    if constexpr (kNorm != VectorNorm::One) {
      double* out = sums + (stripe * network.edges + edge) * kTerms;
      const double total = group.team_sum(sum);
      if (group.lane() == 0) out[0] = total;
      if constexpr (kNorm == VectorNorm::Infinity) {
        const double count = group.team_sum(above);
        if (group.lane() == 0) out[1] = count;
      }
    }
  }
};

/// The squares of one stripe.
template <typename T, VectorNorm kNorm>
struct NetworkSquares {
  static constexpr int kThreads = 256;

  Network<T, kNorm> network;
  double eta;
  double rho;
  double* sums;

  explicit NetworkSquares(const DeviceNetworkSquares& of)
      : network(of.of), eta(of.eta), rho(of.rho), sums(of.sums) {}

  template <typename Group>
  FEDHPC_KERNEL void operator()(Group& group, std::int64_t stripe) const {
    constexpr std::int64_t kStripe = DeviceNetwork::kStripe;
    TwoSums primal_and_w;
    TwoSums zq_and_dual;
    TwoSums pull_and_omega;
    const auto& of = network;
    for (std::int64_t i = group.rank(); i < of.nodes * kStripe; i += group.size()) {
      const std::int64_t node = i / kStripe;
      const std::int64_t column = stripe * kStripe + i % kStripe;
      const T own = of.z[node * of.columns + column];
      T pulled{0};  // (W - A) Q^T
      of.each_edge(node, [&](std::int64_t edge, bool is_first, std::int64_t other) {
        const T a = of.a[edge * of.columns + column];
        const T w = shrunk<T, kNorm>(a, of.numbers[edge]);
        pulled += is_first ? w - a : a - w;
        if (!is_first) return;
        const T zq = own - of.z[other * of.columns + column];
        const auto wide = [](T x) { return static_cast<double>(x); };
        primal_and_w.first += wide(w - zq) * wide(w - zq);
        primal_and_w.second += wide(w) * wide(w);
        zq_and_dual.first += wide(zq) * wide(zq);
      });
      const double gradient = static_cast<double>(own - of.v[node * of.columns + column]) / eta;
      const double dual = rho * static_cast<double>(pulled);
      zq_and_dual.second += (gradient - dual) * (gradient - dual);
      pull_and_omega.first += gradient * gradient;
      pull_and_omega.second += dual * dual;
    }
    double* out = sums + 6 * stripe;
    const TwoSums own[] = {primal_and_w, zq_and_dual, pull_and_omega};
    for (const TwoSums& two : own) {
      const TwoSums all = group.sum(two);
      if (group.rank() == 0) {
        out[0] = all.first;
        out[1] = all.second;
      }
      out += 2;
    }
  }
};

}  // namespace fedhpc::kernels
