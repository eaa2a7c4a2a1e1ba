#pragma once

#include <array>
#include <cstdint>

namespace fedhpc {

constexpr std::int64_t kGlyphSide = 28;
constexpr std::int64_t kGlyphPixels = kGlyphSide * kGlyphSide;
constexpr std::int64_t kGlyphClasses = 10;

/// Draws sample `id` of the generator with this seed, a digit id mod 10, into 28 x 28 pixels, row
/// by row, ink bright on dark. A pure function of seed and id (Purpose::Generator, client = id).
void render_glyph(std::uint64_t seed, std::int64_t id, std::uint8_t* pixels);

}  // namespace fedhpc
