#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "fedhpc/core/rng.hpp"

namespace fedhpc {

/// What dropout with probability p leaves of `count` numbers: `kept` for number i where the draw's
/// i-th 32-bit number is at least p 2^32, else 0. A word has two, the low half first.
template <typename T>
void draw_mask(const DrawKey& key, double p, T kept, T* mask, std::int64_t count) {
  static_assert(std::endian::native == std::endian::little);
  const auto threshold = static_cast<std::uint32_t>(
      std::min<long long>(std::llround(p * 0x1.0p32), std::numeric_limits<std::uint32_t>::max()));
  Draws draws(key);
  std::array<std::uint64_t, 64> words{};
  std::array<std::uint32_t, 2 * words.size()> numbers{};
  constexpr auto kChunk = static_cast<std::int64_t>(numbers.size());
  for (std::int64_t begin = 0; begin < count; begin += kChunk) {
    draws.raw(words);
    std::memcpy(numbers.data(), words.data(), sizeof numbers);
    const auto length = static_cast<std::size_t>(std::min(kChunk, count - begin));
    for (std::size_t i = 0; i < length; ++i) {
      mask[begin + static_cast<std::int64_t>(i)] = numbers[i] >= threshold ? kept : T{0};
    }
  }
}

}  // namespace fedhpc
