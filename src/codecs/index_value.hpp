#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codecs/entries.hpp"
#include "codecs/sparse.hpp"

namespace fedhpc {

/// Entries (entries.hpp) of the index and the bits of every value but +0, indices rising: m values
/// of w bits cost m (ceil(log2 n) + w) bits. -0 is a value like any other, so that nothing is lost.
struct IndexValue {
  template <typename T>
  static constexpr bool kLossless = true;
  template <typename T>
  static constexpr bool kLinear = false;

  template <typename T>
  static std::int64_t encoded_bytes(std::span<const T> row) {
    return entry_bytes<T>(count_sent(row), static_cast<std::int64_t>(row.size()));
  }

  template <typename T>
  static void encode(std::span<const T> row, BitWriter& writer) {
    const int width = bits_for(static_cast<std::int64_t>(row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (is_sent(row[i])) writer.write(i, width);
    }
    writer.align();
    append_sent(row, writer);
  }

  template <typename T>
  static void decode(BitReader& reader, std::span<T> row) {
    const auto n = static_cast<std::int64_t>(row.size());
    std::vector<std::size_t> indices(static_cast<std::size_t>(num_entries<T>(reader, n)));
    std::size_t next = 0;
    for (std::size_t& index : indices) {
      index = reader.read(bits_for(n));
      if (index >= row.size()) reader.fail(concat("index ", index, " is beyond the last"));
      if (index < next) reader.fail(concat("index ", index, " does not follow in rising order"));
      next = index + 1;
    }
    reader.align();
    for (T& value : row) value = T{0};
    for (const std::size_t index : indices) row[index] = take_sent<T>(reader);
  }
};

}  // namespace fedhpc
