#include "data/image_dataset.hpp"

#include <algorithm>

#include <ATen/ops/empty.h>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

ImageDataset::ImageDataset(std::vector<std::int64_t> shape, std::int64_t classes,
                           std::int64_t num_train, std::vector<ImageBlock> blocks,
                           std::vector<std::uint8_t> labels)
    : shape_(std::move(shape)),
      classes_(classes),
      num_train_(num_train),
      blocks_(std::move(blocks)),
      labels_(std::move(labels)) {
  std::size_t images = 0;
  for (const ImageBlock& block : blocks_) {
    const auto count = static_cast<std::size_t>(block.count);
    images += count;
    require(count == 0 ||
                block.first + (count - 1) * block.stride + static_cast<std::size_t>(features()) <=
                    block.bytes.size(),
            "an image lies within its block");
  }
  require(images == labels_.size() && num_train_ <= static_cast<std::int64_t>(images),
          "every image has a label");
}

const std::uint8_t* ImageDataset::image(std::int64_t id) const {
  for (const ImageBlock& block : blocks_) {
    if (id < block.count) {
      return block.bytes.data() + block.first + static_cast<std::size_t>(id) * block.stride;
    }
    id -= block.count;
  }
  throw std::logic_error("the blocks hold every sample");
}

Samples ImageDataset::read(std::span<const std::int64_t> ids) const {
  const auto count = static_cast<std::int64_t>(ids.size());
  const std::int64_t width = features();
  Samples samples{at::empty({count, width}, at::kByte), at::empty({count}, at::kLong)};
  auto* pixels = samples.features.data_ptr<std::uint8_t>();
  auto* labels = samples.labels.data_ptr<std::int64_t>();
  for (const std::int64_t id : ids) {
    require(0 <= id && id < num_train() + num_test(), "a sample id lies in the data set");
    pixels = std::copy_n(image(id), width, pixels);
    *labels++ = labels_[static_cast<std::size_t>(id)];
  }
  return samples;
}

}  // namespace fedhpc
