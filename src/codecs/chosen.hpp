#pragma once

#include <algorithm>
#include <cmath>

#include "codecs/compressor.hpp"
#include "codecs/largest.hpp"

namespace fedhpc {

/// Formats that send k = max(1, floor(fraction m + 1/2)) of the m columns that are compressed.
struct Chosen : Compressor {
  double fraction = 0.01;

  std::int64_t chosen_of(std::int64_t m) const {
    if (m == 0) return 0;
    const double wanted = std::floor(fraction * static_cast<double>(m) + 0.5);
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(wanted), 1, m);
  }
};

/// The k largest magnitudes, as in Largest. ||C(x) - x||^2 <= (1 - k / m) ||x||^2.
struct TopK : Chosen {
  template <typename T>
  std::int64_t encoded_bytes(std::span<const T> row) const {
    return largest(row.size()).encoded_bytes(row);
  }
  template <typename T>
  void encode(std::span<const T> row, BitWriter& writer) const {
    largest(row.size()).encode(row, writer);
  }
  template <typename T>
  void decode(BitReader& reader, std::span<T> row) const {
    largest(row.size()).decode(reader, row);
  }
  template <typename T>
  std::int64_t transmit_(std::span<T> row) const {
    return largest(row.size()).transmit_(row);
  }

 private:
  Largest largest(std::size_t size) const {
    SplitRow inside = columns(size);
    const std::int64_t k = chosen_of(inside.count());
    return {.columns = std::move(inside), .k = k};
  }
};

/// k columns at random, each times m / k:
///
///   the seed of the draws, 8 bytes, none where m = 0;
///   the values of the first k places of a permutation of the m, in order of the places;
///   the values of all other columns, in order
///
/// omega = m / k - 1, so that contracting columns arrive as they are.
struct RandK : Chosen {
  template <typename T>
  std::int64_t encoded_bytes(std::span<const T> row) const {
    const SplitRow inside = columns(row.size());
    const std::int64_t k = chosen_of(inside.count());
    return (k > 0 ? 8 : 0) + k * static_cast<std::int64_t>(sizeof(T)) +
           bytes_of_others(inside, row);
  }

  template <typename T>
  void encode(std::span<const T> row, BitWriter& writer) const {
    const SplitRow inside = columns(row.size());
    if (inside.count() > 0) writer.append(fit.seed);
    each_chosen(
        inside, fit.seed, [&](std::size_t i) { writer.append(bits_of(row[i])); },
        [](std::size_t) {});
    append_others(inside, row, writer);
  }

  template <typename T>
  void decode(BitReader& reader, std::span<T> row) const {
    const SplitRow inside = columns(row.size());
    const auto m = static_cast<double>(inside.count());
    const std::uint64_t seed = inside.count() > 0 ? reader.take<std::uint64_t>() : 0;
    const double inverse = m / static_cast<double>(chosen_of(inside.count()));
    const double factor = contracts ? 1 : inverse;
    each_chosen(
        inside, seed,
        [&](std::size_t i) {
          const T value = std::bit_cast<T>(reader.take<BitsOf<T>>());
          row[i] = static_cast<T>(factor * static_cast<double>(value));
        },
        [&](std::size_t i) { row[i] = 0; });
    take_others(inside, reader, row);
  }

 private:
  template <typename Visit, typename Skip>
  void each_chosen(const SplitRow& inside, std::uint64_t seed, const Visit& visit,
                   const Skip& skip) const {
    if (inside.count() == 0) return;
    const std::vector<std::uint8_t> is_chosen = random_subset(
        {.seed = seed, .purpose = Purpose::Codec}, inside.count(), chosen_of(inside.count()));
    std::size_t place = 0;
    inside.each_inside([&](std::size_t i) { is_chosen[place++] != 0 ? visit(i) : skip(i); });
  }
};

}  // namespace fedhpc
