#pragma once

#include <cstdint>
#include <vector>

#include "fedhpc/core/image_shape.hpp"
#include "fedhpc/core/rng.hpp"

namespace fedhpc {

/// Zeros around an image before it is cropped to its size again (data.augment = crop_flip).
constexpr std::int64_t kCropPadding = 4;

/// Cuts one image of a training batch out of its padded self. The cut begins at this row and column
/// of it, each in [0, 2 kCropPadding], and is mirrored left to right or not. {4, 4, false} is the
/// image itself.
struct Crop {
  std::int64_t row = kCropPadding;
  std::int64_t column = kCropPadding;
  bool flip = false;
};

/// Draws the crops of a batch of `count` samples. Position b of the batch takes words 3b to 3b + 2
/// of the key's sequence: row = below(9), column = below(9), flip = uniform() < 1/2.
std::vector<Crop> draw_crops(const DrawKey& key, std::int64_t count);

/// Returns the key of one batch: Purpose::Augment, with the step of the pass in the place of the
/// epoch. Steps count from 0 over all epochs of the pass.
DrawKey crop_key(std::uint64_t seed, std::int64_t round, std::int64_t client, std::int64_t pass,
                 std::int64_t step);

/// Writes the crop of `image` to `out`, both [channels, height, width].
void crop_image(const std::uint8_t* image, const ImageShape& size, const Crop& crop,
                std::uint8_t* out);

}  // namespace fedhpc
