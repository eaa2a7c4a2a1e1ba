#pragma once

#include <cstdint>
#include <span>

#include "codecs/bits.hpp"

namespace fedhpc {

/// Formats that leave zeros out do so with +0 alone, by its bits.
template <typename T>
bool is_sent(T value) {
  return bits_of(value) != 0;
}

template <typename T>
std::int64_t count_sent(std::span<const T> row) {
  std::int64_t count = 0;
  for (const T value : row) count += is_sent(value);
  return count;
}

template <typename T>
void append_sent(std::span<const T> row, BitWriter& writer) {
  for (const T value : row) {
    if (is_sent(value)) writer.append(bits_of(value));
  }
}

/// Returns the next value sent. No row has two encodings, so that a zero here is an error.
template <typename T>
T take_sent(BitReader& reader) {
  const T value = std::bit_cast<T>(reader.take<BitsOf<T>>());
  if (!is_sent(value)) reader.fail("a value sent is 0");
  return value;
}

}  // namespace fedhpc
