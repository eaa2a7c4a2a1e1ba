// The data sets that come as four idx files: MNIST and Fashion-MNIST.

#include <algorithm>

#include <ATen/ops/empty.h>

#include "data/byte_source.hpp"
#include "data/datasets.hpp"
#include "data/idx.hpp"

namespace fedhpc {

namespace {

constexpr std::int64_t kClasses = 10;

/// Images and labels of one official half, checked against each other.
struct Half {
  IdxArray images;  // [S, height, width]
  IdxArray labels;  // [S]

  std::int64_t size() const { return labels.shape.front(); }
};

class IdxDataset : public Dataset {
 public:
  IdxDataset(Half train, Half test) : train_(std::move(train)), test_(std::move(test)) {
    const std::vector<std::int64_t>& a = train_.images.shape;
    const std::vector<std::int64_t>& b = test_.images.shape;
    if (a[1] != b[1] || a[2] != b[2]) {
      throw DataError(concat("idx file '", test_.images.path, "', offset 8: found images of ", b[1],
                             " x ", b[2], ", expected ", a[1], " x ", a[2], " as in '",
                             train_.images.path, "'"));
    }
  }

  std::vector<std::int64_t> shape() const override {
    return {1, train_.images.shape[1], train_.images.shape[2]};
  }
  std::int64_t classes() const override { return kClasses; }
  std::int64_t num_train() const override { return train_.size(); }
  std::int64_t num_test() const override { return test_.size(); }

  std::vector<std::int64_t> labels() const override {
    std::vector<std::int64_t> all(train_.labels.data(), train_.labels.data() + train_.size());
    all.insert(all.end(), test_.labels.data(), test_.labels.data() + test_.size());
    return all;
  }

  Samples read(std::span<const std::int64_t> ids) const override {
    const auto count = static_cast<std::int64_t>(ids.size());
    Samples samples{at::empty({count, features()}, at::kByte), at::empty({count}, at::kLong)};
    auto* pixels = samples.features.data_ptr<std::uint8_t>();
    auto* labels = samples.labels.data_ptr<std::int64_t>();
    const std::int64_t width = features();
    for (const std::int64_t id : ids) {
      require(0 <= id && id < num_train() + num_test(), "a sample id lies in the data set");
      const Half& half = id < num_train() ? train_ : test_;
      const std::int64_t row = id < num_train() ? id : id - num_train();
      pixels = std::copy_n(half.images.data() + row * width, width, pixels);
      *labels++ = half.labels.data()[row];
    }
    return samples;
  }

 private:
  Half train_;
  Half test_;
};

Half read_half(const DataOptions& options, const std::string& folder, const std::string& prefix) {
  const std::string directory = data_directory(options);
  Half half;
  half.images = read_idx(locate(directory, folder, prefix + "-images-idx3-ubyte", options.name), 3);
  half.labels = read_idx(locate(directory, folder, prefix + "-labels-idx1-ubyte", options.name), 1);
  check_labels(half.images, half.labels, kClasses);
  return half;
}

std::unique_ptr<Dataset> open_idx(const DataOptions& options, const std::string& folder) {
  Half train = read_half(options, folder, "train");
  return std::make_unique<IdxDataset>(std::move(train), read_half(options, folder, "t10k"));
}

}  // namespace

std::unique_ptr<Dataset> open_mnist(const DataOptions& options) {
  return open_idx(options, "mnist");
}

std::unique_ptr<Dataset> open_fmnist(const DataOptions& options) {
  return open_idx(options, "fashion-mnist");
}

}  // namespace fedhpc
