// The libsvm format (www.csie.ntu.edu.tw/~cjlin/libsvm): kept sparse, filled up with zeros when
// samples are read.

#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/core/error.hpp"

#include "data/byte_source.hpp"
#include "data/datasets.hpp"
#include "data/libsvm.hpp"
#include "data/numbers.hpp"

namespace fedhpc {

namespace {

class LibsvmDataset : public Dataset {
 public:
  LibsvmDataset(LibsvmTable train, LibsvmTable test, const std::string& path)
      : train_(std::move(train)),
        test_(std::move(test)),
        width_(std::max(train_.width, test_.width)) {
    const std::vector<double> distinct = distinct_labels(train_.labels, test_.labels);
    check_distinct(distinct, path);
    if (width_ == 0) {
      throw DataError(
          concat("libsvm file '", path, "': found labels only, expected index:value in some line"));
    }
    classes_ = static_cast<std::int64_t>(distinct.size());
    for (const double label : distinct) names_.push_back(text_of(label));
    labels_ = class_numbers(train_.labels, distinct);
    const std::vector<std::int64_t> more = class_numbers(test_.labels, distinct);
    labels_.insert(labels_.end(), more.begin(), more.end());
  }

  std::vector<std::int64_t> shape() const override { return {width_}; }
  std::int64_t classes() const override { return classes_; }
  std::int64_t num_train() const override { return train_.rows(); }
  std::int64_t num_test() const override { return test_.rows(); }
  std::vector<std::int64_t> labels() const override { return labels_; }
  std::vector<std::string> class_names() const override { return names_; }

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
  std::int64_t classes_ = 0;
  std::vector<std::int64_t> labels_;
  std::vector<std::string> names_;  // [K]
};

}  // namespace

std::unique_ptr<Dataset> open_libsvm(const DataOptions& options) {
  LibsvmTable train = parse_libsvm(read_bytes(data_file(options)), options.file);
  LibsvmTable test;
  if (!options.test_file.empty()) {
    test = parse_libsvm(read_bytes(options.test_file), options.test_file);
  }
  return std::make_unique<LibsvmDataset>(std::move(train), std::move(test), options.file);
}

}  // namespace fedhpc
