#include "data/block_dataset.hpp"

#include <algorithm>
#include <type_traits>

#include <ATen/ops/empty.h>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

template <typename T>
BlockDataset<T>::BlockDataset(std::vector<std::int64_t> shape, std::int64_t classes,
                              std::int64_t num_train, std::vector<RowBlock<T>> blocks,
                              std::vector<std::int64_t> labels)
    : shape_(std::move(shape)),
      classes_(classes),
      num_train_(num_train),
      blocks_(std::move(blocks)),
      labels_(std::move(labels)) {
  std::size_t rows = 0;
  for (const RowBlock<T>& block : blocks_) {
    const auto count = static_cast<std::size_t>(block.count);
    const auto entries = static_cast<std::size_t>(features());
    rows += count;
    require(count == 0 || block.first + (count - 1) * block.stride + entries <= block.values.size(),
            "a sample lies within its block");
  }
  require(rows == labels_.size() && num_train_ <= static_cast<std::int64_t>(rows),
          "every sample has a label");
}

template <typename T>
T* BlockDataset<T>::copy_row(std::int64_t id, T* out) const {
  for (const RowBlock<T>& block : blocks_) {
    if (id >= block.count) {
      id -= block.count;
      continue;
    }
    const T* row = block.values.data() + block.first + static_cast<std::size_t>(id) * block.stride;
    return std::copy_n(row, static_cast<std::size_t>(features()), out);
  }
  throw std::logic_error("the blocks hold every sample");
}

template <typename T>
Samples BlockDataset<T>::read(std::span<const std::int64_t> ids) const {
  const auto count = static_cast<std::int64_t>(ids.size());
  constexpr auto kType = std::is_same_v<T, double> ? at::kDouble : at::kByte;
  Samples samples{at::empty({count, features()}, kType), at::empty({count}, at::kLong)};
  T* row = samples.features.template data_ptr<T>();
  auto* labels = samples.labels.data_ptr<std::int64_t>();
  for (const std::int64_t id : ids) {
    require(0 <= id && id < num_train() + num_test(), "a sample id lies in the data set");
    row = copy_row(id, row);
    *labels++ = labels_[static_cast<std::size_t>(id)];
  }
  return samples;
}

template class BlockDataset<std::uint8_t>;
template class BlockDataset<double>;

}  // namespace fedhpc
