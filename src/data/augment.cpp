#include "fedhpc/data/augment.hpp"

#include <algorithm>

namespace fedhpc {

std::vector<Crop> draw_crops(const DrawKey& key, std::int64_t count) {
  Draws draws(key);
  std::vector<Crop> crops(static_cast<std::size_t>(count));
  for (Crop& crop : crops) {
    crop.row = draws.below(2 * kCropPadding + 1);
    crop.column = draws.below(2 * kCropPadding + 1);
    crop.flip = draws.uniform() < 0.5;
  }
  return crops;
}

DrawKey crop_key(std::uint64_t seed, std::int64_t round, std::int64_t client, std::int64_t pass,
                 std::int64_t step) {
  return {.seed = seed,
          .purpose = Purpose::Augment,
          .pass = static_cast<std::uint64_t>(pass),
          .epoch = static_cast<std::uint64_t>(step),
          .client = static_cast<std::uint64_t>(client),
          .round = static_cast<std::uint64_t>(round)};
}

void crop_image(const std::uint8_t* image, const ImageShape& size, const Crop& crop,
                std::uint8_t* out) {
  const std::int64_t down = crop.row - kCropPadding;  // out[y, x] = image[y + down, x + right]
  const std::int64_t right = crop.column - kCropPadding;
  const std::int64_t begin = std::clamp<std::int64_t>(-right, 0, size.width);  // inside the image
  const std::int64_t end = std::clamp<std::int64_t>(size.width - right, begin, size.width);
  std::fill_n(out, size.channels * size.height * size.width, std::uint8_t{0});
  for (std::int64_t channel = 0; channel < size.channels; ++channel) {
    for (std::int64_t y = 0; y < size.height; ++y, out += size.width) {
      if (y + down < 0 || y + down >= size.height) continue;
      const std::uint8_t* row = image + (channel * size.height + y + down) * size.width;
      std::copy(row + begin + right, row + end + right, out + begin);
      if (crop.flip) std::reverse(out, out + size.width);
    }
  }
}

}  // namespace fedhpc
