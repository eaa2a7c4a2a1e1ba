#include "fedhpc/data/augment.hpp"

#include <numeric>
#include <set>

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "fedhpc/data/shard.hpp"

#include "data/data_support.hpp"

namespace fedhpc {
namespace {

using namespace testing_support;

using Bytes = std::vector<std::uint8_t>;

/// The definition, pixel by pixel: pad, cut, mirror.
Bytes reference(const Bytes& image, const ImageShape& size, const Crop& crop) {
  Bytes out;
  for (std::int64_t channel = 0; channel < size.channels; ++channel) {
    for (std::int64_t y = 0; y < size.height; ++y) {
      for (std::int64_t x = 0; x < size.width; ++x) {
        const std::int64_t row = crop.row + y - 4;
        const std::int64_t column = crop.column + (crop.flip ? size.width - 1 - x : x) - 4;
        const bool inside = 0 <= row && row < size.height && 0 <= column && column < size.width;
        const std::int64_t index = (channel * size.height + row) * size.width + column;
        out.push_back(inside ? image[static_cast<std::size_t>(index)] : std::uint8_t{0});
      }
    }
  }
  return out;
}

TEST(CropTest, EqualsPaddingCuttingAndMirroring) {
  for (const ImageShape& size : {ImageShape{3, 6, 5}, ImageShape{1, 28, 28}, ImageShape{2, 3, 2}}) {
    Bytes image(static_cast<std::size_t>(size.channels * size.height * size.width));
    std::iota(image.begin(), image.end(), std::uint8_t{1});
    for (std::int64_t row = 0; row <= 8; ++row) {
      for (std::int64_t column = 0; column <= 8; ++column) {
        for (const bool flip : {false, true}) {
          const Crop crop{.row = row, .column = column, .flip = flip};
          Bytes out(image.size(), 255);
          crop_image(image.data(), size, crop, out.data());
          EXPECT_EQ(out, reference(image, size, crop)) << row << " " << column << " " << flip;
        }
      }
    }
    Bytes same(image.size());
    crop_image(image.data(), size, Crop{}, same.data());
    EXPECT_EQ(same, image);
  }
}

TEST(CropTest, PositionsTakeThreeWordsEach) {
  const DrawKey key = crop_key(9, 2, 7, 1, 5);
  const std::vector<Crop> crops = draw_crops(key, 400);
  Draws draws(
      {.seed = 9, .purpose = Purpose::Augment, .pass = 1, .epoch = 5, .client = 7, .round = 2});
  std::set<std::int64_t> rows;
  double flips = 0;
  for (const Crop& crop : crops) {
    EXPECT_EQ(crop.row, draws.below(9));
    EXPECT_EQ(crop.column, draws.below(9));
    EXPECT_EQ(crop.flip, draws.uniform() < 0.5);
    rows.insert(crop.row);
    flips += crop.flip ? 1 : 0;
  }
  EXPECT_EQ(rows, (std::set<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_NEAR(flips / 400, 0.5, 0.1);
}

TEST(CropTest, IsGatheredBeforeStandardising) {
  DataOptions options;
  options.clients = 1;
  options.samples_per_client = 6;
  options.standardize = Standardize::Half;
  options.augment = Augment::CropFlip;
  const auto data = open_dataset(options);
  const Preparation preparation = make_preparation(options, *data);
  const Partition partition = make_partition(options, *data);
  const Shard shard(*data, partition, {0}, preparation, DType::Float32);
  EXPECT_EQ(shard.augment(), Augment::CropFlip);
  const std::vector<Crop> crops = {{0, 8, false}, {6, 3, true}};
  const std::vector<std::int64_t> positions = {2, 0};
  const Tensor batch = at::empty({1, 2, 784}, at::kFloat);
  shard.gather_train(0, positions, 0, batch, at::empty({1, 2}, at::kLong), crops);
  const Tensor raw = data->read(partition.train.of(0)).features;
  for (std::size_t b = 0; b < 2; ++b) {
    const auto* pixels = raw.const_data_ptr<std::uint8_t>() + positions[b] * 784;
    const Bytes expected = reference(Bytes(pixels, pixels + 784), {1, 28, 28}, crops[b]);
    for (std::size_t d = 0; d < 784; ++d) {
      EXPECT_EQ(batch.const_data_ptr<float>()[784 * b + d],
                static_cast<float>((expected[d] / 255.0 - .5) / .5));
    }
  }
  const std::vector<Crop> one = {Crop{}};
  EXPECT_THROW(shard.gather_train(0, positions, 0, batch, at::empty({1, 2}, at::kLong), one),
               std::logic_error);
}

TEST(CropTest, IsForImagesInPixels) {
  DataOptions options;
  options.augment = Augment::CropFlip;
  options.name = "synthetic";
  options.clients = 2;
  const auto numbers = open_dataset(options);
  expect_in("data.augment = crop_flip is for images in pixels, and data.name = synthetic",
            message_of<ConfigError>([&] { make_preparation(options, *numbers); }));
  const TableDataset flat({0, 1, 0}, 3, 2);  // pixels, but no image
  EXPECT_THROW(make_preparation(options, flat), ConfigError);
}

}  // namespace
}  // namespace fedhpc
