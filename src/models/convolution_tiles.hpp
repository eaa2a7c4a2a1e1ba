#pragma once

#include <cstdint>
#include <span>

// The two products within convolutions of images whose channels lie side by side, place by place.
// Both factors are read where they lie: no columns are unfolded.

namespace fedhpc {

/// Values that lie one after the other: those of a window's row, and the rows of weights that belong
/// to them.
struct Run {
  std::int64_t offset = 0;  // from the window's first value
  std::int64_t weight = 0;  // row of the first value's weights
  std::int64_t length = 0;
};

/// The channels that a call makes side by side.
template <typename T>
constexpr std::int64_t kTileChannels = 128 / sizeof(T);

/// The row of `out` at rows[n], [0..width) of it, = the sum over all values j of all runs r of
///   image[pixels[n] + r.offset + j] * weights[r.weight + j, 0..width).
/// Rows of weights and of out have kTileChannels<T> values, of which the first `width` are made,
/// rounded up to whole vectors.
template <typename T>
void windows_product(const T* image, std::span<const std::int32_t> pixels,
                     std::span<const Run> runs, const T* weights, std::int64_t width, T* out,
                     std::span<const std::int32_t> rows);

/// sums[r.weight + j, 0..width) += the sum over n of
///   image[pixels[n] + r.offset + j] * others[other_pixels[n], 0..width)
/// for all values j of all runs r. Rows of sums have kTileChannels<T> values. Of `others` whole
/// vectors are read.
template <typename T>
void windows_sums(const T* image, std::span<const std::int32_t> pixels, std::span<const Run> runs,
                  const T* others, std::span<const std::int32_t> other_pixels, std::int64_t width,
                  T* sums);

/// to[c * to_stride + r] = from[r * from_stride + c].
template <typename T>
void transpose(const T* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns,
               T* to, std::int64_t to_stride);

}  // namespace fedhpc
