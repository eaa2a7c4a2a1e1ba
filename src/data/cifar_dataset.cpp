// CIFAR-10 and CIFAR-100 in their binary versions. Samples stand in the order of the files;
// CIFAR-100's label is the fine one.

#include "fedhpc/core/error.hpp"

#include "data/byte_source.hpp"
#include "data/cifar.hpp"
#include "data/datasets.hpp"
#include "data/image_dataset.hpp"

namespace fedhpc {

namespace {

/// The blocks and labels read so far.
struct Images {
  std::vector<ImageBlock> blocks;
  std::vector<std::uint8_t> labels;

  void append(const DataOptions& options, const std::string& folder, const std::string& name,
              const CifarLabels& layout) {
    const std::string path = locate(data_directory(options), folder, name, options.name);
    ImageBlock block{.bytes = read_bytes(path),
                     .first = layout.size(),
                     .stride = layout.size() + kCifarPixels,
                     .count = 0};
    const std::vector<std::uint8_t> more = parse_cifar(block.bytes, path, layout);
    block.count = static_cast<std::int64_t>(more.size());
    labels.insert(labels.end(), more.begin(), more.end());
    if (!blocks.empty() && blocks.front().count != block.count) {
      throw DataError(concat("CIFAR file '", path, "', offset ", block.bytes.size(),
                             ": found the end of the file after ", block.count,
                             " records, expected ", blocks.front().count,
                             " as in the first training file; fetch it again"));
    }
    blocks.push_back(std::move(block));
  }
};

std::unique_ptr<Dataset> make(Images train, Images test, std::int64_t classes) {
  const auto num_train = static_cast<std::int64_t>(train.labels.size());
  for (ImageBlock& block : test.blocks) train.blocks.push_back(std::move(block));
  train.labels.insert(train.labels.end(), test.labels.begin(), test.labels.end());
  return std::make_unique<ImageDataset>(std::vector<std::int64_t>{3, 32, 32}, classes, num_train,
                                        std::move(train.blocks), std::move(train.labels));
}

}  // namespace

std::unique_ptr<Dataset> open_cifar10(const DataOptions& options) {
  const std::string folder = "cifar-10-batches-bin";
  const CifarLabels layout = {10};
  Images train;
  for (int batch = 1; batch <= 5; ++batch) {
    train.append(options, folder, concat("data_batch_", batch, ".bin"), layout);
  }
  Images test;
  test.append(options, folder, "test_batch.bin", layout);
  return make(std::move(train), std::move(test), 10);
}

std::unique_ptr<Dataset> open_cifar100(const DataOptions& options) {
  const std::string folder = "cifar-100-binary";
  const CifarLabels layout = {20, 100};
  Images train;
  train.append(options, folder, "train.bin", layout);
  Images test;
  test.append(options, folder, "test.bin", layout);
  return make(std::move(train), std::move(test), 100);
}

}  // namespace fedhpc
