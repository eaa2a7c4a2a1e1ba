#pragma once

#include <cstdint>

#include "codecs/bits.hpp"

namespace fedhpc {

/// Rounds to float32 towards zero, with the last bit set where anything was cut off. A second
/// rounding, to a type with at least two significant bits fewer, then rounds `value` to nearest
/// even as one would (Boldo and Melquiond, "When double rounding is odd", 2005).
inline float to_float_odd(float value) { return value; }
inline float to_float_odd(double value) {
  // Magnitudes of finite numbers are ordered as their bits are; integers compare without flags, so
  // that loops over this are vectorised. NaN stays NaN: its exponent is never left.
  constexpr std::uint64_t kMagnitude = ~(std::uint64_t{1} << 63);
  const auto nearest = static_cast<float>(value);
  const std::uint64_t back = bits_of(static_cast<double>(nearest)) & kMagnitude;
  const std::uint64_t wanted = bits_of(value) & kMagnitude;
  const std::uint32_t towards_zero = bits_of(nearest) - static_cast<std::uint32_t>(back > wanted);
  return std::bit_cast<float>(towards_zero | static_cast<std::uint32_t>(back != wanted));
}

/// IEEE 754 binary16: 1 sign, 5 exponent and 10 fraction bits; largest number 65504.
struct Half {
  /// Rounds to nearest even; from 65520 on infinity; NaN becomes a quiet NaN of the same sign.
  static std::uint16_t narrow(float value) {
    const std::uint32_t sign = bits_of(value) >> 16 & 0x8000U;
    const std::uint32_t magnitude = bits_of(value) & 0x7fffffffU;
    // The exponent's bias goes from 127 to 15, 13 fraction bits go; a carry may run into the
    // exponent, up to infinity.
    const std::uint32_t odd = magnitude >> 13 & 1U;
    const std::uint32_t normal = (magnitude - (112U << 23) + 0xfffU + odd) >> 13;
    // Below 2^-14 the spacing is 2^-24, as it is of float32 from 0.5 on: the sum rounds.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    const std::uint32_t small = bits_of(shifted) - bits_of(0.5F);
    std::uint32_t half = magnitude < 113U << 23 ? small : normal;
    half = magnitude >= 143U << 23 ? 0x7c00U : half;
    half = magnitude > 255U << 23 ? 0x7e00U : half;
    return static_cast<std::uint16_t>(sign | half);
  }

  /// Exact.
  static float widen(std::uint16_t half) {
    const std::uint32_t sign = (half & 0x8000U) << 16;
    const std::uint32_t shifted = (half & 0x7fffU) << 13;
    const std::uint32_t normal = shifted + (112U << 23);
    const std::uint32_t infinite = shifted + (224U << 23);
    const float small =
        std::bit_cast<float>(shifted + (113U << 23)) - std::bit_cast<float>(113U << 23);
    std::uint32_t magnitude = (half & 0x7c00U) == 0 ? bits_of(small) : normal;
    magnitude = (half & 0x7c00U) == 0x7c00U ? infinite : magnitude;
    return std::bit_cast<float>(sign | magnitude);
  }
};

/// bfloat16: the upper half of a float32, with its range and 8 significant bits.
struct Brain {
  /// Rounds to nearest even; infinity beyond the range; NaN becomes a quiet NaN of the same sign.
  static std::uint16_t narrow(float value) {
    const std::uint32_t bits = bits_of(value);
    const std::uint32_t rounded = bits + 0x7fffU + (bits >> 16 & 1U);
    const bool is_nan = (bits & 0x7fffffffU) > 255U << 23;
    return static_cast<std::uint16_t>((is_nan ? bits | 0x400000U : rounded) >> 16);
  }

  /// Exact.
  static float widen(std::uint16_t brain) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(brain) << 16);
  }
};

}  // namespace fedhpc
