#pragma once

#include <cstdint>
#include <span>

#include "fedhpc/core/error.hpp"

#include "codecs/bits.hpp"

namespace fedhpc {

// Formats that send m entries of a place in the row, b = ceil(log2 n) bits, and a value of w bits:
//
//   m fields of b bits, the lowest bit first, filled up to a byte with zeros;
//   m values, each 4 or 8 bytes as in the row
//
// m is not sent. An entry takes more bits than can fill up a byte, so that payloads of different m
// differ in size and the size tells m.

/// Bytes of m entries for a row of n values of type T: m (b + w) bits.
template <typename T>
std::int64_t entry_bytes(std::int64_t m, std::int64_t n) {
  return bytes_for(m * bits_for(n)) + m * static_cast<std::int64_t>(sizeof(T));
}

/// Returns the number of entries in the payload, from its size.
template <typename T>
std::int64_t num_entries(const BitReader& reader, std::int64_t n) {
  const std::int64_t entry_bits = bits_for(n) + 8 * static_cast<std::int64_t>(sizeof(T));
  const std::int64_t m = 8 * reader.size() / entry_bits;
  if (entry_bytes<T>(m, n) != reader.size()) {
    reader.fail(concat("it does not hold whole entries of ", entry_bits, " bits"));
  }
  if (m > n) reader.fail(concat("it holds ", m, " entries"));
  return m;
}

}  // namespace fedhpc
