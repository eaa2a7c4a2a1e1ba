#pragma once

#include <cstdint>
#include <vector>

#include "fedhpc/data/dataset.hpp"

namespace fedhpc {

/// Records of one file as they came: image i stands at bytes[first + i * stride].
struct ImageBlock {
  std::vector<std::uint8_t> bytes;
  std::size_t first = 0;   // [bytes]
  std::size_t stride = 0;  // [bytes]
  std::int64_t count = 0;
};

/// Images in memory as bytes, channel by channel and row by row, in blocks that follow each other.
class ImageDataset : public Dataset {
 public:
  /// `labels` has one entry per image of all blocks; the first `num_train` images are the official
  /// training set.
  ImageDataset(std::vector<std::int64_t> shape, std::int64_t classes, std::int64_t num_train,
               std::vector<ImageBlock> blocks, std::vector<std::uint8_t> labels);

  std::vector<std::int64_t> shape() const override { return shape_; }
  std::int64_t classes() const override { return classes_; }
  std::int64_t num_train() const override { return num_train_; }
  std::int64_t num_test() const override {
    return static_cast<std::int64_t>(labels_.size()) - num_train_;
  }
  std::vector<std::int64_t> labels() const override { return {labels_.begin(), labels_.end()}; }
  Samples read(std::span<const std::int64_t> ids) const override;

 private:
  const std::uint8_t* image(std::int64_t id) const;

  std::vector<std::int64_t> shape_;
  std::int64_t classes_;
  std::int64_t num_train_;
  std::vector<ImageBlock> blocks_;
  std::vector<std::uint8_t> labels_;  // [S]
};

}  // namespace fedhpc
