#pragma once

#include <cstdint>
#include <vector>

#include "fedhpc/data/dataset.hpp"

namespace fedhpc {

/// Samples of one file as they came: row i starts at values[first + i * stride].
template <typename T>
struct RowBlock {
  std::vector<T> values;
  std::size_t first = 0;
  std::size_t stride = 0;
  std::int64_t count = 0;
};

/// Keeps samples in memory in blocks that follow each other. T is std::uint8_t (pixels, channel by
/// channel and row by row) or double.
template <typename T>
class BlockDataset : public Dataset {
 public:
  /// `labels` has one entry per row of all blocks; the first `num_train` rows are the official
  /// training set.
  BlockDataset(std::vector<std::int64_t> shape, std::int64_t classes, std::int64_t num_train,
               std::vector<RowBlock<T>> blocks, std::vector<std::int64_t> labels);

  std::vector<std::int64_t> shape() const override { return shape_; }
  std::int64_t classes() const override { return classes_; }
  std::int64_t num_train() const override { return num_train_; }
  std::int64_t num_test() const override {
    return static_cast<std::int64_t>(labels_.size()) - num_train_;
  }
  std::vector<std::int64_t> labels() const override { return labels_; }
  Samples read(std::span<const std::int64_t> ids) const override;

 private:
  T* copy_row(std::int64_t id, T* out) const;

  std::vector<std::int64_t> shape_;
  std::int64_t classes_;
  std::int64_t num_train_;
  std::vector<RowBlock<T>> blocks_;
  std::vector<std::int64_t> labels_;  // [S]
};

}  // namespace fedhpc
