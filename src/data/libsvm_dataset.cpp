// The libsvm format (www.csie.ntu.edu.tw/~cjlin/libsvm): kept sparse, filled up with zeros when
// samples are read.

#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/core/error.hpp"

#include "data/byte_source.hpp"
#include "data/datasets.hpp"
#include "data/described_dataset.hpp"
#include "data/libsvm.hpp"
#include "data/numbers.hpp"

namespace fedhpc {

namespace {

class LibsvmDataset : public Dataset {
 public:
  /// `labels` [S], training then test, are below `classes`.
  LibsvmDataset(LibsvmTable train, LibsvmTable test, std::vector<std::int64_t> labels,
                std::int64_t classes)
      : train_(std::move(train)),
        test_(std::move(test)),
        width_(std::max(train_.width, test_.width)),
        classes_(classes),
        labels_(std::move(labels)) {}

  std::vector<std::int64_t> shape() const override { return {width_}; }
  std::int64_t classes() const override { return classes_; }
  std::int64_t num_train() const override { return train_.rows(); }
  std::int64_t num_test() const override { return test_.rows(); }
  std::vector<std::int64_t> labels() const override { return labels_; }

  Samples read(std::span<const std::int64_t> ids) const override {
    const auto count = static_cast<std::int64_t>(ids.size());
    Samples samples{at::zeros({count, width_}, at::kDouble), at::empty({count}, at::kLong)};
    auto* features = samples.features.data_ptr<double>();
    auto* labels = samples.labels.data_ptr<std::int64_t>();
    for (const std::int64_t id : ids) {
      require(0 <= id && id < num_train() + num_test(), "a sample id lies in the data set");
      const LibsvmTable& table = id < num_train() ? train_ : test_;
      const auto row = static_cast<std::size_t>(id < num_train() ? id : id - num_train());
      for (std::int64_t i = table.offsets[row]; i < table.offsets[row + 1]; ++i) {
        features[table.columns[static_cast<std::size_t>(i)]] =
            table.values[static_cast<std::size_t>(i)];
      }
      features += width_;
      *labels++ = labels_[static_cast<std::size_t>(id)];
    }
    return samples;
  }

 private:
  LibsvmTable train_;
  LibsvmTable test_;
  std::int64_t width_;
  std::int64_t classes_;
  std::vector<std::int64_t> labels_;
};

}  // namespace

std::unique_ptr<Dataset> open_libsvm(const DataOptions& options) {
  LibsvmTable train = parse_libsvm(read_bytes(data_file(options)), options.file);
  LibsvmTable test;
  if (!options.test_file.empty()) {
    test = parse_libsvm(read_bytes(options.test_file), options.test_file);
  }
  if (train.width == 0 && test.width == 0) {
    throw DataError(concat("libsvm file '", options.file,
                           "': found labels only, expected index:value in some line"));
  }
  Description description;
  std::vector<std::int64_t> labels(train.labels.size() + test.labels.size(), 0);
  std::int64_t classes = 1;
  if (options.label_kind == LabelKind::Number) {
    description.targets = numbers_as_targets(train.labels, test.labels);
  } else {
    const std::vector<double> values = distinct(train.labels, test.labels);
    check_exact(values, options.file);
    labels = places(train.labels, test.labels, values);
    for (const double label : values) description.class_names.push_back(text_of(label));
    classes = std::ssize(values);
    check_distinct(description.class_names, options.file);
    if (options.label_kind == LabelKind::Auto) check_classes(labels, classes, options.file);
  }
  return std::make_unique<DescribedDataset>(
      std::make_unique<LibsvmDataset>(std::move(train), std::move(test), std::move(labels),
                                      classes),
      std::move(description));
}

}  // namespace fedhpc
