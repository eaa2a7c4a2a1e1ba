#pragma once

#include "gpu/kernels/kernel.hpp"

// Mean and variance of what a group goes through.

namespace fedhpc::kernels {

struct Moments {
  double mean = 0;
  double variance = 0;  // sum / n
};

/// Those of `packs` packs of N values, which `pack_at` gives by number. Every value is read once, but
/// for each thread's first ones: their mean lies so near that of all that squares of distances from
/// it lose nothing. (Of a share f of the values, its square distance from the mean is at most 1 / f
/// variances.)
template <typename T, int N, typename Group, typename PackAt>
FEDHPC_KERNEL Moments moments_of(Group& group, std::int64_t packs, const PackAt& pack_at) {
  TwoSums first;
  if (group.rank() < packs) {
    const Pack<T, N> pack = pack_at(group.rank());
    for (const T value : pack.value) first.first += static_cast<double>(value);
    first.second = N;
  }
  first = group.sum(first);
  const T near = static_cast<T>(first.first / first.second);
  TwoSums parts;
  FEDHPC_UNROLL
  for (std::int64_t i = group.rank(); i < packs; i += group.size()) {
    const Pack<T, N> pack = pack_at(i);
    T squares{0};
    T sum{0};
    for (const T value : pack.value) {
      squares += (value - near) * (value - near);
      sum += value - near;
    }
    parts.first += static_cast<double>(squares);
    parts.second += static_cast<double>(sum);
  }
  const TwoSums sums = group.sum(parts);
  const auto n = static_cast<double>(packs * N);
  const double rest = sums.second / n;
  return {static_cast<double>(near) + rest, sums.first / n - rest * rest};
}

}  // namespace fedhpc::kernels
