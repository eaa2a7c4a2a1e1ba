// CIFAR-10 and CIFAR-100 in their binary versions. Samples stand in the order of the files;
// CIFAR-100's label is the fine one.

#include "fedhpc/core/error.hpp"

#include "data/block_dataset.hpp"
#include "data/byte_source.hpp"
#include "data/cifar.hpp"
#include "data/datasets.hpp"

namespace fedhpc {

namespace {

/// Opens the files `train` and `test`, equally many records in each of `train`.
std::unique_ptr<Dataset> open_cifar(const DataOptions& options, const std::string& folder,
                                    const std::vector<std::string>& train, const std::string& test,
                                    const CifarLabels& layout) {
  std::vector<std::string> paths;
  for (const std::string& name : train) {
    paths.push_back(locate(data_directory(options), folder, name, options.name));
  }
  paths.push_back(locate(data_directory(options), folder, test, options.name));
  std::vector<std::vector<std::uint8_t>> contents = read_bytes(paths);

  std::vector<RowBlock<std::uint8_t>> blocks;
  std::vector<std::int64_t> labels;
  std::int64_t num_train = 0;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const std::vector<std::uint8_t> more = parse_cifar(contents[i], paths[i], layout);
    const auto count = static_cast<std::int64_t>(more.size());
    if (i < train.size()) {
      num_train += count;
      if (i > 0 && blocks.front().count != count) {
        throw DataError(concat("CIFAR file '", paths[i], "', offset ", contents[i].size(),
                               ": found the end of the file after ", count, " records, expected ",
                               blocks.front().count, " as in '", paths.front(),
                               "'; fetch it again"));
      }
    }
    labels.insert(labels.end(), more.begin(), more.end());
    blocks.push_back({.values = std::move(contents[i]),
                      .first = layout.size(),
                      .stride = layout.size() + kCifarPixels,
                      .count = count});
  }
  return std::make_unique<BlockDataset<std::uint8_t>>(std::vector<std::int64_t>{3, 32, 32},
                                                      layout.back(), num_train, std::move(blocks),
                                                      std::move(labels));
}

}  // namespace

std::unique_ptr<Dataset> open_cifar10(const DataOptions& options) {
  return open_cifar(options, "cifar-10-batches-bin",
                    {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                     "data_batch_5.bin"},
                    "test_batch.bin", {10});
}

std::unique_ptr<Dataset> open_cifar100(const DataOptions& options) {
  return open_cifar(options, "cifar-100-binary", {"train.bin"}, "test.bin", {20, 100});
}

}  // namespace fedhpc
