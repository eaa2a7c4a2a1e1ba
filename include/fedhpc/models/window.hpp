#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <vector>

#include "fedhpc/core/image_shape.hpp"

namespace fedhpc {

/// A number for each side of an image; one number is for both.
struct Sides {
  constexpr Sides(std::int64_t both) : height(both), width(both) {}  // NOLINT
  constexpr Sides(std::int64_t of_height, std::int64_t of_width)
      : height(of_height), width(of_width) {}

  std::int64_t height;
  std::int64_t width;

  std::int64_t product() const { return height * width; }
  /// As LibTorch's operators take them.
  std::array<std::int64_t, 2> pair() const { return {height, width}; }
  auto operator<=>(const Sides&) const = default;
};

/// The places of a side that one output covers: first, first + dilation, ... below last. A mean
/// divides by `count`.
struct Covered {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int64_t count = 0;
};

/// A window along one side.
struct WindowSide {
  std::int64_t size;
  std::int64_t stride;
  std::int64_t padding;
  std::int64_t dilation;
  bool ceil;

  /// From its first place to its last.
  std::int64_t span() const { return dilation * (size - 1) + 1; }
  /// The windows along a side of this length, 0 where none fits.
  std::int64_t outputs(std::int64_t length) const {
    const std::int64_t room = length + 2 * padding - span() + (ceil ? stride - 1 : 0);
    if (room < 0) return 0;
    const std::int64_t windows = room / stride + 1;
    return ceil && (windows - 1) * stride >= length + padding ? windows - 1 : windows;
  }
  /// What each of them covers. Means count the padding too, or not.
  std::vector<Covered> covered(std::int64_t length, bool count_padding) const;
};

/// A window that moves over an image with zeros (for a maximum: nothing) around it, as PyTorch's
/// convolutions and poolings have it. Its places are `dilation` apart. With `ceil` a last window
/// may reach beyond the padding if it starts before the padding's end.
struct Window {
  Sides size = 3;
  Sides stride = 1;
  Sides padding = 0;
  Sides dilation = 1;
  bool ceil = false;

  WindowSide down() const {
    return {size.height, stride.height, padding.height, dilation.height, ceil};
  }
  WindowSide across() const {
    return {size.width, stride.width, padding.width, dilation.width, ceil};
  }
  ImageShape output(const ImageShape& in, std::int64_t channels) const {
    return {channels, down().outputs(in.height), across().outputs(in.width)};
  }
  bool fits(const ImageShape& in) const {
    return down().outputs(in.height) > 0 && across().outputs(in.width) > 0;
  }
  auto operator<=>(const Window&) const = default;
};

/// The `outputs` parts of a side that adaptive pooling takes: part i of m of a side of n covers
/// floor(i n / m) to ceil((i + 1) n / m) - 1.
std::vector<Covered> adaptive_parts(std::int64_t length, std::int64_t outputs);

}  // namespace fedhpc
