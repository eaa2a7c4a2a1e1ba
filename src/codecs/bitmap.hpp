#pragma once

#include <cstdint>
#include <span>

#include "codecs/bits.hpp"
#include "codecs/sparse.hpp"

namespace fedhpc {

/// A map of the values sent, then those values:
///
///   n bits, bit i % 8 of byte i / 8 set where value i is sent, filled up to a byte with zeros;
///   the values sent in order, each 4 or 8 bytes as in the row
///
/// Every value but +0 is sent: m values of w bits cost n + m w bits. -0 is a value like any other,
/// so that nothing is lost.
struct Bitmap {
  template <typename T>
  static constexpr bool kLossless = true;
  template <typename T>
  static constexpr bool kLinear = false;

  template <typename T>
  static std::int64_t encoded_bytes(std::span<const T> row) {
    return bytes_for(static_cast<std::int64_t>(row.size())) +
           count_sent(row) * static_cast<std::int64_t>(sizeof(T));
  }

  template <typename T>
  static void encode(std::span<const T> row, BitWriter& writer) {
    for (const T value : row) writer.write(is_sent(value) ? 1 : 0, 1);
    writer.align();
    append_sent(row, writer);
  }

  template <typename T>
  static void decode(BitReader& reader, std::span<T> row) {
    // Any value that is sent marks the places until the values themselves are read.
    for (T& value : row) value = reader.read(1) == 0 ? T{0} : T{1};
    reader.align();
    for (T& value : row) {
      if (is_sent(value)) value = take_sent<T>(reader);
    }
  }
};

}  // namespace fedhpc
