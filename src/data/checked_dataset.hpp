#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fedhpc/data/dataset.hpp"

namespace fedhpc {

/// A data set that is not fedhpc's own. Throws DataError for what it gives unless that is as Dataset
/// describes it: the numbers index counts and outputs, and have to be those of labels.
class CheckedDataset final : public Dataset {
 public:
  /// `name`: data.name.
  CheckedDataset(std::string name, std::unique_ptr<Dataset> data);

  std::vector<std::int64_t> shape() const override { return data_->shape(); }
  std::int64_t classes() const override { return classes_; }
  std::int64_t num_train() const override { return data_->num_train(); }
  std::int64_t num_test() const override { return data_->num_test(); }
  bool on_demand() const override { return data_->on_demand(); }
  Targets targets() const override { return targets_; }
  std::vector<std::int64_t> labels() const override;
  Samples read(std::span<const std::int64_t> ids) const override;
  std::vector<std::int64_t> natural_clients() const override;
  std::vector<std::string> class_names() const override { return data_->class_names(); }
  std::vector<std::string> client_names() const override { return data_->client_names(); }

 private:
  template <typename... Parts>
  [[noreturn]] void fail(const Parts&... what) const {
    throw DataError(concat("data set '", name_, "': ", what...));
  }
  void check_targets() const;
  /// Checks the length of a list that the function `of` has given.
  void check_length(const char* of, std::size_t found, std::int64_t expected) const;
  /// Also that read() gives a sample the label of labels().
  void check_label(std::int64_t label, std::int64_t sample) const;
  /// Checks sizes and type of what read() has given; `sizes`: one with S rows.
  void check_tensor(const char* what, const Tensor& found, const std::vector<std::int64_t>& sizes,
                    const std::vector<at::ScalarType>& types) const;
  void check_finite(const char* what, const Tensor& found, std::span<const std::int64_t> ids) const;
  void check_whole_targets(const Tensor& targets, std::span<const std::int64_t> ids) const;

  std::string name_;
  std::unique_ptr<Dataset> data_;
  Targets targets_;
  std::int64_t classes_;
  std::int64_t features_;
  mutable std::vector<std::int64_t> labels_;  // what labels() has given; empty before
};

}  // namespace fedhpc
