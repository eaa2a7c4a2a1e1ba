#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fedhpc {

constexpr std::size_t kCifarPixels = 3072;  // 3 channels x 32 x 32

/// The number of values each label byte of a record may take; the last byte is the class.
using CifarLabels = std::vector<int>;

/// Parses a file in CIFAR's binary layout (www.cs.toronto.edu/~kriz/cifar.html) and returns its
/// labels. Records have the label bytes and 3072 pixels, channel by channel and row by row. Throws
/// DataError naming file, offset, what stands there and what was expected.
std::vector<std::uint8_t> parse_cifar(std::span<const std::uint8_t> bytes, const std::string& path,
                                      const CifarLabels& layout);

}  // namespace fedhpc
