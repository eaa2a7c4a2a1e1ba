#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "fedhpc/codecs/codec.hpp"
#include "fedhpc/core/rng.hpp"

#include "codecs/bits.hpp"
#include "codecs/split_row.hpp"

namespace fedhpc {

/// What formats have in common that compress changes of a model's weights. They are applied to the
/// tensors of a payload; what lies beside these follows behind, as it is. Draws of a payload are
/// those of the key (its seed, Purpose::Codec).
///
/// An unbiased C with E||C(x) - x||^2 <= omega ||x||^2 turns into one that contracts when what
/// arrives is C(x) / (1 + omega): E||C(x) / (1 + omega) - x||^2 <= omega / (1 + omega) ||x||^2.
/// Error feedback needs the latter.
struct Compressor {
  template <typename T>
  static constexpr bool kLossless = false;
  template <typename T>
  static constexpr bool kLinear = false;

  PayloadFit fit = {};
  bool contracts = false;  ///< arrive as C(x) / (1 + omega)

  SplitRow columns(std::size_t size) const {
    if (fit.tensors) return SplitRow(*fit.tensors);
    if (size == 0) return SplitRow({});
    return SplitRow({{0, static_cast<std::int64_t>(size)}});
  }
  Draws draws(std::uint64_t seed) const { return Draws({.seed = seed, .purpose = Purpose::Codec}); }
  double shrinkage(double omega) const { return contracts ? 1 / (1 + omega) : 1; }
};

/// The columns of tensor `range`, in a row.
template <typename T>
std::span<T> of_range(std::span<T> row, const Range& range) {
  return row.subspan(static_cast<std::size_t>(range.first), static_cast<std::size_t>(range.size()));
}

}  // namespace fedhpc
