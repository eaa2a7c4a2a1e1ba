#pragma once

#include "gpu/kernels/sample_norm.hpp"

// The gradients of the parameters of norms of samples.

namespace fedhpc::kernels {

/// The gradients of the parameters.
template <typename T, int N>
struct NormParameterGradients {
  PartShape<T, N> parts;
  Images<const T> dy;
  SumSink<T> weight;
  SumSink<T> bias;
  std::int64_t parameters;
  Divisor width;      // parameters
  Divisor sharing;    // parts of a sample that have them
  Divisor of_a_part;  // channels

  explicit NormParameterGradients(const DeviceSampleNormGradient& of)
      : parts(of.norm),
        dy(of.norm.y, of.norm.places),
        weight(of.weight),
        bias(of.bias),
        parameters(of.norm.width()),
        width(of.norm.width()),
        sharing(of.norm.shared ? of.norm.groups : 1),
        of_a_part(of.norm.channels) {}

  /// Parts of all samples that have one parameter.
  FEDHPC_KERNEL std::int64_t sharers() const {
    return parts.norm.x.batch * (parts.norm.shared ? parts.norm.groups : 1);
  }

  /// Adds what one pack of the sharer's channel gives the parameter k.
  FEDHPC_KERNEL void add(std::int64_t c, std::int64_t k, std::int64_t sharer, std::int64_t place,
                         TwoSums& sums) const {
    const Split at = sharing(sharer);
    const Split own = of_a_part(k);
    const std::int64_t part = parts.norm.shared ? at.rest : own.quotient;
    const std::int64_t channel = parts.norm.shared ? at.rest * parts.norm.channels + k : k;
    const NormRule<T> rule = parts.saved_rule({c, at.quotient, part}, k);
    const Pack<T, N> x = load<T, N>(parts.x(c, at.quotient, channel) + place);
    const Pack<T, N> gradient = load<T, N>(dy(c, at.quotient, channel) + place);
    T dw{0};
    T db{0};
    for (int i = 0; i < N; ++i) {
      const T one = rule.masked(x.value[i], gradient.value[i]);
      dw += one * rule.normal(x.value[i]);
      db += one;
    }
    sums.first += static_cast<double>(dw);
    sums.second += static_cast<double>(db);
  }

  FEDHPC_KERNEL void write(std::int64_t c, std::int64_t k, const TwoSums& sums) const {
    weight.write(sums.first, c, k);
    bias.write(sums.second, c, k);
  }
};

/// One parameter of a channel of many places.
template <typename T, int N>
struct NormParametersByPlaces {
  NormParameterGradients<T, N> of;

  explicit NormParametersByPlaces(const DeviceSampleNormGradient& gradient) : of(gradient) {}

  template <typename Group>
  FEDHPC_KERNEL void operator()(Group& group, std::int64_t g) const {
    const Split at = of.width(g);
    const std::int64_t count = of.sharers() * (of.parts.norm.places / N);
    TwoSums own;
    FEDHPC_UNROLL
    for (std::int64_t i = group.rank(); i < count; i += group.size()) {
      const Split pack = of.parts.packs(i);
      of.add(at.quotient, at.rest, pack.quotient, pack.rest * N, own);
    }
    const TwoSums sums = group.sum(own);
    if (group.rank() == 0) of.write(at.quotient, at.rest, sums);
  }
};

/// Some parameters beside each other where a channel is one value: threads beside each other read
/// values beside each other.
template <typename T, int kGroup>
struct NormParametersByValues {
  static constexpr int kThreads = kGroup;
  static constexpr int kColumns = kGroup > 32 ? 32 : kGroup > 1 ? kGroup / 2 : 1;
  NormParameterGradients<T, 1> of;
  Divisor blocks;

  struct Shared {
    double first[kThreads];
    double second[kThreads];
  };

  explicit NormParametersByValues(const DeviceSampleNormGradient& gradient)
      : of(gradient), blocks(blocks_of(gradient)) {}

  static std::int64_t blocks_of(const DeviceSampleNormGradient& of) {
    return (of.norm.width() + kColumns - 1) / kColumns;
  }

  template <typename Group>
  FEDHPC_KERNEL void operator()(Group& group, std::int64_t g, Shared& shared) const {
    const Split at = blocks(g);
    const std::int64_t c = at.quotient;
    const std::int64_t column = group.rank() % kColumns;
    const std::int64_t k = at.rest * kColumns + column;
    const bool inside = k < of.parameters;
    TwoSums own;
    if (inside) {
      FEDHPC_UNROLL
      for (std::int64_t i = group.rank() / kColumns; i < of.sharers(); i += kThreads / kColumns) {
        of.add(c, k, i, 0, own);
      }
    }
    group.sync();  // the last sums have been read
    shared.first[group.rank()] = own.first;
    shared.second[group.rank()] = own.second;
    group.sync();
    if (!inside || group.rank() >= kColumns) return;
    for (int i = 1; i < kThreads / kColumns; ++i) {
      own.first += shared.first[i * kColumns + column];
      own.second += shared.second[i * kColumns + column];
    }
    of.write(c, k, own);
  }
};

}  // namespace fedhpc::kernels
