#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace fedhpc {

/// Decodes a JPEG file of height x width pixels to `pixels` (3 * height * width bytes), channel by
/// channel and row by row; a grey image gives three equal channels. Throws DataError naming the
/// file for another size, data that are no JPEG, damaged or truncated, and colours other than grey,
/// YCbCr and RGB.
void decode_jpeg(std::span<const std::uint8_t> bytes, const std::string& path, int height,
                 int width, std::uint8_t* pixels);

}  // namespace fedhpc
