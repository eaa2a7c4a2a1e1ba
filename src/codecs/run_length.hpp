#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "codecs/entries.hpp"

namespace fedhpc {

/// Entries (entries.hpp) of every plateau, in order of the row: its length less 1 and its value. A
/// plateau is a longest run of neighbours with the same bits, so that +0 and -0 differ, a NaN
/// equals itself and nothing is lost. m plateaus of values of w bits cost m (ceil(log2 n) + w)
/// bits, as the similarity-network paper counts. A length code that grows with the length would
/// save some bits of a short plateau beside the 32 or 64 of its value.
struct RunLength {
  template <typename T>
  static constexpr bool kLossless = true;
  template <typename T>
  static constexpr bool kLinear = false;

  template <typename T>
  static std::int64_t encoded_bytes(std::span<const T> row) {
    std::int64_t plateaus = row.empty() ? 0 : 1;
    for (std::size_t i = 1; i < row.size(); ++i) plateaus += bits_of(row[i]) != bits_of(row[i - 1]);
    return entry_bytes<T>(plateaus, static_cast<std::int64_t>(row.size()));
  }

  template <typename T>
  static void encode(std::span<const T> row, BitWriter& writer) {
    const int width = bits_for(static_cast<std::int64_t>(row.size()));
    each_plateau(
        row, [&](std::size_t first, std::size_t last) { writer.write(last - first - 1, width); });
    writer.align();
    each_plateau(row, [&](std::size_t first, std::size_t) { writer.append(bits_of(row[first])); });
  }

  template <typename T>
  static void decode(BitReader& reader, std::span<T> row) {
    const auto n = static_cast<std::int64_t>(row.size());
    std::vector<std::size_t> lengths(static_cast<std::size_t>(num_entries<T>(reader, n)));
    std::size_t total = 0;
    for (std::size_t& length : lengths) {
      length = reader.read(bits_for(n)) + 1;
      if (length > row.size() - total) reader.fail("its plateaus are longer than the row");
      total += length;
    }
    if (total < row.size()) reader.fail(concat("its plateaus are ", total, " long"));
    reader.align();
    std::size_t first = 0;
    for (const std::size_t length : lengths) {
      const T value = std::bit_cast<T>(reader.take<BitsOf<T>>());
      if (first > 0 && bits_of(value) == bits_of(row[first - 1])) {
        reader.fail("two neighbouring plateaus have the same value");
      }
      std::fill_n(row.begin() + static_cast<std::ptrdiff_t>(first), length, value);
      first += length;
    }
  }

 private:
  /// Calls work(first, last) for every plateau [first, last).
  template <typename T, typename Work>
  static void each_plateau(std::span<const T> row, const Work& work) {
    std::size_t first = 0;
    for (std::size_t i = 1; i <= row.size(); ++i) {
      if (i < row.size() && bits_of(row[i]) == bits_of(row[first])) continue;
      work(first, i);
      first = i;
    }
  }
};

}  // namespace fedhpc
