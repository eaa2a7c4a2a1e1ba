#include "codecs/narrow.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "fedhpc/core/rng.hpp"
#include "fedhpc/core/tensor.hpp"

namespace fedhpc {
namespace {

/// Float32 numbers of all exponents, dense around the narrow types' ends, and every special one.
std::vector<std::uint32_t> float_bits() {
  std::vector<std::uint32_t> bits;
  Draws draws({.seed = 3, .purpose = Purpose::Codec});
  for (int i = 0; i < 200000; ++i) bits.push_back(static_cast<std::uint32_t>(draws.raw() >> 32));
  // Ties, and one unit to either side, at every exponent of both signs.
  for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {
    for (const std::uint32_t fraction : {0x0U, 0x1000U, 0x2000U, 0x3000U, 0x8000U, 0x18000U,
                                         0x400000U, 0x7fe000U, 0x7fefffU, 0x7ff000U, 0x7fffffU}) {
      for (const std::uint32_t step : {0U, 1U, 0xffffffffU}) {
        const std::uint32_t magnitude = ((exponent << 23 | fraction) + step) & 0x7fffffffU;
        bits.push_back(magnitude);
        bits.push_back(magnitude | 0x80000000U);
      }
    }
  }
  return bits;
}

/// What ATen makes of the numbers in `narrow` type, as 16 bits each.
std::vector<std::uint16_t> of_aten(const std::vector<std::uint32_t>& bits, at::ScalarType narrow) {
  Tensor values = at::empty({static_cast<std::int64_t>(bits.size())}, at::kFloat);
  std::memcpy(values.data_ptr(), bits.data(), 4 * bits.size());
  const Tensor narrowed = values.to(narrow);
  std::vector<std::uint16_t> result(bits.size());
  std::memcpy(result.data(), narrowed.data_ptr(), 2 * bits.size());
  return result;
}

template <typename Narrow>
void expect_as_aten(at::ScalarType type) {
  const std::vector<std::uint32_t> bits = float_bits();
  const std::vector<std::uint16_t> expected = of_aten(bits, type);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const auto value = std::bit_cast<float>(bits[i]);
    const std::uint16_t ours = Narrow::narrow(value);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(Narrow::widen(ours))) << std::hex << bits[i];
      ASSERT_EQ(ours >> 15, bits[i] >> 31) << std::hex << bits[i];
    } else {
      ASSERT_EQ(ours, expected[i]) << std::hex << bits[i];
    }
  }
}

TEST(Narrow, RoundsAsAtenDoes) {
  expect_as_aten<Half>(at::kHalf);
  expect_as_aten<Brain>(at::kBFloat16);
}

template <typename Narrow>
void expect_widened_as_aten(at::ScalarType type) {
  Tensor all = at::empty({65536}, type);
  for (std::uint32_t i = 0; i < 65536; ++i) {
    static_cast<std::uint16_t*>(all.data_ptr())[i] = static_cast<std::uint16_t>(i);
  }
  const Tensor widened = all.to(at::kFloat);
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto narrow = static_cast<std::uint16_t>(i);
    const float expected = widened.const_data_ptr<float>()[i];
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(Narrow::widen(narrow))) << i;
    } else {
      ASSERT_EQ(bits_of(Narrow::widen(narrow)), bits_of(expected)) << i;
      ASSERT_EQ(Narrow::narrow(expected), narrow) << "what is exact stays";
    }
  }
}

TEST(Narrow, WidensEveryNumberExactly) {
  expect_widened_as_aten<Half>(at::kHalf);
  expect_widened_as_aten<Brain>(at::kBFloat16);
}

TEST(Narrow, HalfPrecisionByHand) {
  EXPECT_EQ(Half::widen(Half::narrow(1.0F / 3)), 0.333251953125F);
  EXPECT_EQ(Half::widen(Half::narrow(65519.996F)), 65504.0F);
  EXPECT_EQ(Half::widen(Half::narrow(65520.0F)), std::numeric_limits<float>::infinity());
  EXPECT_EQ(Half::narrow(0x1p-24F), 1);
  EXPECT_EQ(Half::narrow(0x1p-25F), 0);         // a tie, to even
  EXPECT_EQ(Half::narrow(0x1.000002p-25F), 1);  // just above it
  EXPECT_EQ(Half::narrow(-0x1p-26F), 0x8000);   // the sign stays
  EXPECT_EQ(Brain::widen(Brain::narrow(1.0F / 3)), 0.333984375F);
}

/// Nearest even of a float64 by comparing with both neighbours, in exact arithmetic: the neighbours
/// and their mean are float64 numbers.
template <typename Narrow>
std::uint16_t nearest_even(double value) {
  std::uint16_t below = 0;  // the largest magnitude not above, by bisection: bits are ordered
  std::uint16_t above = Narrow::narrow(std::numeric_limits<float>::infinity());
  const std::uint16_t infinite = above;
  const double magnitude = std::abs(value);
  while (above - below > 1) {
    const auto middle = static_cast<std::uint16_t>((below + above) / 2);
    (Narrow::widen(middle) <= magnitude ? below : above) = middle;
  }
  const double low = Narrow::widen(below);
  // Infinity takes the place of the next number there would be.
  const double high = above == infinite
                          ? 2 * low - Narrow::widen(static_cast<std::uint16_t>(below - 1))
                          : static_cast<double>(Narrow::widen(above));
  const double tie = (low + high) / 2;
  const bool up = magnitude > tie || (magnitude == tie && below % 2 == 1);
  return static_cast<std::uint16_t>((up ? above : below) | (std::signbit(value) ? 0x8000 : 0));
}

template <typename Narrow>
void expect_rounded_once() {
  Draws draws({.seed = 4, .purpose = Purpose::Codec});
  int rounded_twice = 0;
  for (int i = 0; i < 100000; ++i) {
    // Half of the numbers lie next to a tie, where rounding to float32 first goes wrong.
    const auto narrow = static_cast<std::uint16_t>(draws.raw() & 0x7fffU);
    const float here = Narrow::widen(narrow);
    const float next = Narrow::widen(static_cast<std::uint16_t>(narrow + 1));
    if (!std::isfinite(here) || !std::isfinite(next)) continue;
    double value = (static_cast<double>(here) + static_cast<double>(next)) / 2;
    if (i % 2 == 0) value *= 1 + (draws.uniform() - 0.5) * 0x1p-26;
    if (i % 2 == 1) value *= std::exp2(40 * draws.normal());
    if (i % 3 == 0) value = -value;
    const std::uint16_t expected = nearest_even<Narrow>(value);
    ASSERT_EQ(Narrow::narrow(to_float_odd(value)), expected) << std::hexfloat << value;
    rounded_twice += Narrow::narrow(static_cast<float>(value)) != expected;
  }
  EXPECT_GT(rounded_twice, 1000) << "the test reaches what it is about";
}

TEST(Narrow, Float64IsRoundedOnce) {
  expect_rounded_once<Half>();
  expect_rounded_once<Brain>();
}

TEST(Narrow, Float64OutOfRange) {
  constexpr double kLargest = std::numeric_limits<double>::max();
  constexpr double kSmallest = std::numeric_limits<double>::denorm_min();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double value : {kLargest, kInfinity}) {
    EXPECT_EQ(Half::narrow(to_float_odd(value)), 0x7c00);
    EXPECT_EQ(Half::narrow(to_float_odd(-value)), 0xfc00);
    EXPECT_EQ(Brain::narrow(to_float_odd(value)), 0x7f80);
    EXPECT_EQ(Brain::narrow(to_float_odd(-value)), 0xff80);
  }
  for (const double value : {0.0, kSmallest}) {
    EXPECT_EQ(Half::narrow(to_float_odd(-value)), 0x8000);
    EXPECT_EQ(Brain::narrow(to_float_odd(value)), 0);
  }
  for (const std::uint64_t bits :
       {0x7ff8000000000000U, 0x7ff0000000000001U, 0xfff7ffffffffffffU, 0xffffffffffffffffU}) {
    const auto value = std::bit_cast<double>(bits);
    EXPECT_TRUE(std::isnan(Half::widen(Half::narrow(to_float_odd(value))))) << bits;
    EXPECT_TRUE(std::isnan(Brain::widen(Brain::narrow(to_float_odd(value))))) << bits;
  }
}

}  // namespace
}  // namespace fedhpc
