#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "fedhpc/data/dataset.hpp"

namespace fedhpc {

/// A file's description of its samples beside features and labels. Lists may be empty.
struct Description {
  std::vector<std::int64_t> clients = {};      // [S]
  std::vector<std::string> class_names = {};   // [K]
  std::vector<std::string> client_names = {};  // [N]
  Tensor targets = {};                         // [S, T] int64 or float64, or undefined
  std::int64_t target_classes = 0;             // of whole numbers, where their source says it
};

/// The numbers of two files as what a regression is to tell, [S, 1] float64.
Tensor numbers_as_targets(const std::vector<double>& train, const std::vector<double>& test);

/// Describes targets [S, T]; an undefined tensor: the labels are the targets.
Targets targets_of(const Tensor& targets);

/// Keeps samples in memory with a description.
class DescribedDataset : public Dataset {
 public:
  DescribedDataset(std::unique_ptr<Dataset> data, Description description)
      : data_(std::move(data)),
        description_(std::move(description)),
        targets_(targets_of(description_.targets)) {
    targets_.classes = description_.target_classes;
  }

  std::vector<std::int64_t> shape() const override { return data_->shape(); }
  std::int64_t classes() const override { return data_->classes(); }
  std::int64_t num_train() const override { return data_->num_train(); }
  std::int64_t num_test() const override { return data_->num_test(); }
  std::vector<std::int64_t> labels() const override { return data_->labels(); }
  Targets targets() const override { return targets_; }
  Samples read(std::span<const std::int64_t> ids) const override;
  std::vector<std::int64_t> natural_clients() const override { return description_.clients; }
  std::vector<std::string> class_names() const override { return description_.class_names; }
  std::vector<std::string> client_names() const override { return description_.client_names; }

 private:
  std::unique_ptr<Dataset> data_;
  Description description_;
  Targets targets_;
};

}  // namespace fedhpc
