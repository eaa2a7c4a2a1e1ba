#pragma once

#include <cstdint>
#include <vector>

#include "fedhpc/core/image_shape.hpp"
#include "fedhpc/core/rng.hpp"

namespace fedhpc {

/// Zeros around an image before it is cropped to its size again (data.augment = crop_flip).
constexpr std::int64_t kCropPadding = 4;

/// How one image of a training batch is cut out of its padded self: from this row and column of it,
/// each in [0, 2 kCropPadding], then mirrored left to right or not. {4, 4, false} is the image
/// itself.
struct Crop {
  std::int64_t row = kCropPadding;
  std::int64_t column = kCropPadding;
  bool flip = false;
};

/// The crops of a batch of `count` samples. Position b of the batch takes words 3b to 3b + 2 of the
/// key's sequence: row = below(9), column = below(9), flip = uniform() < 1/2.
std::vector<Crop> draw_crops(const DrawKey& key, std::int64_t count);

/// The key of one batch: Purpose::Augment with the step of the pass, counted from 0 over all its
/// epochs, in the counter's place for an epoch.
DrawKey crop_key(std::uint64_t seed, std::int64_t round, std::int64_t client, std::int64_t pass,
                 std::int64_t step);

/// Writes the crop of `image` to `out`, both [channels, height, width].
void crop_image(const std::uint8_t* image, const ImageShape& size, const Crop& crop,
                std::uint8_t* out);

}  // namespace fedhpc
