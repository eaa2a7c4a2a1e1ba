#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "fedhpc/core/rng.hpp"

namespace fedhpc {

/// What dropout with probability p leaves of `count` numbers: `kept` for number i where the draw's
/// i-th 32-bit number is at least p 2^32, else 0. A word has two, the low half first.
template <typename T>
void draw_mask(const DrawKey& key, double p, T kept, T* mask, std::int64_t count) {
  const auto threshold = static_cast<std::uint64_t>(std::llround(p * 0x1.0p32));
  Draws draws(key);
  std::array<std::uint64_t, 64> words{};
  constexpr auto kChunk = static_cast<std::int64_t>(2 * words.size());
  for (std::int64_t begin = 0; begin < count; begin += kChunk) {
    draws.raw(words);
    const std::int64_t length = std::min(kChunk, count - begin);
    for (std::int64_t i = 0; i < length; ++i) {
      const std::uint64_t word = words[static_cast<std::size_t>(i / 2)];
      const std::uint64_t number = i % 2 == 0 ? word & 0xFFFFFFFF : word >> 32;
      mask[begin + i] = number >= threshold ? kept : T{0};
    }
  }
}

}  // namespace fedhpc
