#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "codecs/bits.hpp"
#include "codecs/split_row.hpp"

namespace fedhpc {

/// Tensors of one magnitude each:
///
///   a field of 1 bit for every column of a tensor, 1 where the value's sign bit is set, filled up
///   the magnitude of each tensor, then the values of all other columns, in order
struct Signs {
  SplitRow columns;

  template <typename T>
  static constexpr bool kLossless = false;
  template <typename T>
  static constexpr bool kLinear = false;

  template <typename T>
  std::int64_t encoded_bytes(std::span<const T> row) const {
    return bytes_for(columns.count()) +
           static_cast<std::int64_t>(columns.ranges().size() * sizeof(T)) +
           bytes_of_others(columns, row);
  }

  template <typename T>
  void encode(std::span<const T> row, BitWriter& writer) const {
    columns.each_inside([&](std::size_t i) { writer.write(std::signbit(row[i]) ? 1 : 0, 1); });
    writer.align();
    for (const auto& [begin, end] : columns.ranges()) {
      writer.append(bits_of(std::abs(row[static_cast<std::size_t>(begin)])));
    }
    append_others(columns, row, writer);
  }

  template <typename T>
  void decode(BitReader& reader, std::span<T> row) const {
    columns.each_inside([&](std::size_t i) { row[i] = reader.read(1) == 0 ? T{1} : T{-1}; });
    reader.align();
    for (const auto& [begin, end] : columns.ranges()) {
      const T magnitude = std::bit_cast<T>(reader.take<BitsOf<T>>());
      if (std::signbit(magnitude)) reader.fail("a magnitude is negative");
      give_magnitude_(row, begin, end, magnitude);
    }
    take_others(columns, reader, row);
  }

  template <typename T>
  std::int64_t transmit_(std::span<T> row) const {
    for (const auto& [begin, end] : columns.ranges()) {
      give_magnitude_(row, begin, end, std::abs(row[static_cast<std::size_t>(begin)]));
    }
    return encoded_bytes(std::span<const T>(row));
  }

 private:
  template <typename T>
  static void give_magnitude_(std::span<T> row, std::int64_t begin, std::int64_t end, T magnitude) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      row[i] = std::copysign(magnitude, row[i]);
    }
  }
};

}  // namespace fedhpc
