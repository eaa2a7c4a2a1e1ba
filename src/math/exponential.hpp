#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <type_traits>

#include "math/wide.hpp"

// The exponential function and its kin without branch or table: loops over them become vectors.

namespace fedhpc {

/// What a number type needs for 2^n and for exp(r) - 1 with |r| <= log(2) / 2.
template <typename T>
struct ExponentialOf;

template <>
struct ExponentialOf<float> {
  using Bits = std::int32_t;
  static constexpr float kRound = 0x1.8p23F;  // added and taken away: the nearest whole number
  static constexpr int kMantissa = 23;
  static constexpr Bits kBias = 127;
  static constexpr int kTerms = 7;
  static constexpr float kLeast = -86;  // what lies below is taken for it, or its result for 0
  static constexpr float kMost = 88;
  static constexpr float kLog2High = 0x1.62e4p-1F;  // so short that multiples of it are exact
  static constexpr float kLog2Low = 0x1.7f7d1cf79abcap-20F;
};

template <>
struct ExponentialOf<double> {
  using Bits = std::int64_t;
  static constexpr double kRound = 0x1.8p52;
  static constexpr int kMantissa = 52;
  static constexpr Bits kBias = 1023;
  static constexpr int kTerms = 13;
  static constexpr double kLeast = -707;
  static constexpr double kMost = 709;
  static constexpr double kLog2High = 0x1.62e42fefa38p-1;
  static constexpr double kLog2Low = 0x1.ef35793c7673p-45;
};

/// exp(x) = power (1 + rest): with x = n log 2 + r it is 2^n exp(r), and exp(r) - 1 the beginning
/// of its Taylor series.
template <typename T>
struct Exponential {
  FEDHPC_INLINE explicit Exponential(T x) {
    using Of = ExponentialOf<T>;
    using Bits = typename Of::Bits;
    x = x < Of::kLeast ? Of::kLeast : x;  // not-a-number stays
    x = x > Of::kMost ? Of::kMost : x;
    const T shifted = x * std::numbers::log2e_v<T> + Of::kRound;
    const T n = shifted - Of::kRound;
    const T r = (x - n * Of::kLog2High) - n * Of::kLog2Low;
    T series = 1;  // 1 + r/2 (1 + r/3 (1 + ...))
    for (int k = Of::kTerms; k >= 2; --k) series = 1 + r * static_cast<T>(1.0 / k) * series;
    const Bits whole = std::bit_cast<Bits>(shifted) - std::bit_cast<Bits>(Of::kRound);
    power = std::bit_cast<T>((whole + Of::kBias) << Of::kMantissa);
    rest = r * series;
  }

  T power;
  T rest;
};

/// exp(x), and 0 where that is next to the smallest normal number.
template <typename T>
FEDHPC_INLINE T exp_of(T x) {
  const Exponential<T> e(x);
  const T value = e.power * e.rest + e.power;
  return x < ExponentialOf<T>::kLeast ? T{0} : value;
}

/// 1 / (1 + exp(-x)).
template <typename T>
FEDHPC_INLINE T sigmoid_of(T x) {
  const Exponential<T> e(-x);
  return 1 / (e.power * e.rest + (e.power + 1));
}

/// tanh(x) = (e^2|x| - 1) / (e^2|x| + 1) with the sign of x; small x keep their digits.
template <typename T>
FEDHPC_INLINE T tanh_of(T x) {
  const Exponential<T> e(2 * std::abs(x));
  const T less_1 = e.power * e.rest + (e.power - 1);
  return std::copysign(less_1 / (less_1 + 2), x);
}

}  // namespace fedhpc
