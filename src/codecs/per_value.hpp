#pragma once

#include <cstdint>
#include <span>

#include "codecs/bits.hpp"
#include "codecs/narrow.hpp"

namespace fedhpc {

// Formats that send every value as one number of fixed size, in order of the row:
//
//   n numbers, little-endian

/// `Wire` has narrow(T) -> number on the wire and widen<T>(number) -> T.
template <typename Wire>
struct PerValue {
  template <typename T>
  using Number = decltype(Wire::narrow(T{}));
  template <typename T>
  static constexpr bool kLossless = sizeof(Number<T>) == sizeof(T);
  template <typename T>
  static constexpr bool kLinear = kLossless<T>;

  template <typename T>
  static std::int64_t encoded_bytes(std::span<const T> row) {
    return static_cast<std::int64_t>(row.size() * sizeof(Number<T>));
  }

  template <typename T>
  static void encode(std::span<const T> row, BitWriter& writer) {
    for (const T value : row) writer.append(Wire::narrow(value));
  }

  template <typename T>
  static void decode(BitReader& reader, std::span<T> row) {
    for (T& value : row) value = Wire::template widen<T>(reader.take<Number<T>>());
  }

  template <typename T>
  static std::int64_t transmit_(std::span<T> row) {
    for (T& value : row) value = Wire::template widen<T>(Wire::narrow(value));
    return encoded_bytes(std::span<const T>(row));
  }
};

/// Sends the bits themselves, so that every NaN arrives as it was sent.
struct SameWire {
  template <typename T>
  static BitsOf<T> narrow(T value) {
    return bits_of(value);
  }
  template <typename T>
  static T widen(BitsOf<T> bits) {
    return std::bit_cast<T>(bits);
  }
};

struct Float32Wire {
  static std::uint32_t narrow(float value) { return bits_of(value); }
  /// Rounds to nearest even; infinity beyond the range.
  static std::uint32_t narrow(double value) { return bits_of(static_cast<float>(value)); }
  template <typename T>
  static T widen(std::uint32_t bits) {
    return static_cast<T>(std::bit_cast<float>(bits));
  }
};

/// Rounds to Half or Brain once, whatever the row's type.
template <typename Narrow>
struct NarrowWire {
  template <typename T>
  static std::uint16_t narrow(T value) {
    return Narrow::narrow(to_float_odd(value));
  }
  template <typename T>
  static T widen(std::uint16_t bits) {
    return static_cast<T>(Narrow::widen(bits));
  }
};

using Dense = PerValue<SameWire>;
using Dense32 = PerValue<Float32Wire>;
using Fp16 = PerValue<NarrowWire<Half>>;
using Bf16 = PerValue<NarrowWire<Brain>>;

}  // namespace fedhpc
