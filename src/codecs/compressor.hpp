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

/// The columns beside those that are compressed.
template <typename T>
void append_others(const SplitRow& columns, std::span<const T> row, BitWriter& writer) {
  columns.each_outside(row.size(), [&](std::size_t i) { writer.append(bits_of(row[i])); });
}

template <typename T>
void take_others(const SplitRow& columns, BitReader& reader, std::span<T> row) {
  columns.each_outside(row.size(),
                       [&](std::size_t i) { row[i] = std::bit_cast<T>(reader.take<BitsOf<T>>()); });
}

template <typename T>
std::int64_t bytes_of_others(const SplitRow& columns, std::span<const T> row) {
  return (static_cast<std::int64_t>(row.size()) - columns.count()) *
         static_cast<std::int64_t>(sizeof(T));
}

/// Replaces a row by what its receiver reads, by way of the bytes.
template <typename Format, typename T>
std::int64_t transmit_by_bytes_(const Format& format, std::span<T> row) {
  BitWriter writer;
  format.encode(std::span<const T>(row), writer);
  const std::vector<std::byte> bytes = writer.take();
  BitReader reader(bytes, "compressor", row.size());
  format.decode(reader, row);
  return static_cast<std::int64_t>(bytes.size());
}

/// The columns of tensor `range`, in a row.
template <typename T>
std::span<T> of_range(std::span<T> row, const Range& range) {
  return row.subspan(static_cast<std::size_t>(range.first), static_cast<std::size_t>(range.size()));
}

}  // namespace fedhpc
