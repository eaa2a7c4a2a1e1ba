#include "data/checked_dataset.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

namespace fedhpc {

namespace {

std::string names_of(const std::vector<at::ScalarType>& types) {
  std::vector<std::string> names;
  for (const at::ScalarType type : types) names.emplace_back(at::toString(type));
  return join(names, " or ");
}

}  // namespace

CheckedDataset::CheckedDataset(std::string name, std::unique_ptr<Dataset> data)
    : name_(std::move(name)),
      data_(std::move(data)),
      targets_(data_->targets()),
      classes_(data_->classes()),
      features_(data_->features()) {
  const std::vector<std::int64_t> sizes = shape();
  if (sizes.empty() || std::ranges::any_of(sizes, [](auto size) { return size < 1; })) {
    fail("shape() gave ", at::IntArrayRef(sizes), ", expected sizes of 1 or more");
  }
  if (classes_ < 1) fail("classes() gave ", classes_, ", expected 1 or more");
  if (num_train() < 0 || num_test() < 0 || num_train() + num_test() == 0) {
    fail("num_train() gave ", num_train(), " and num_test() ", num_test(),
         ", expected counts with at least one sample");
  }
  const std::size_t names = class_names().size();
  if (names > 0) check_length("class_names", names, classes_);
  check_targets();
}

void CheckedDataset::check_targets() const {
  if (targets_.kind == Targets::Kind::Label) return;
  if (targets_.count < 1) fail("targets() gave the count ", targets_.count, ", expected 1 or more");
  if (targets_.kind != Targets::Kind::Whole) return;
  const std::vector<std::int64_t>& values = targets_.values;
  const bool ascending = std::ranges::adjacent_find(values, std::greater_equal<>()) == values.end();
  if (values.empty() || !ascending) {
    fail("targets() gave whole numbers with ", values.empty() ? "no values" : "unsorted values",
         ", expected those that occur, ascending");
  }
}

void CheckedDataset::check_length(const char* of, std::size_t found, std::int64_t expected) const {
  if (static_cast<std::int64_t>(found) == expected) return;
  fail(of, "() gave ", found, " entries, expected ", expected);
}

void CheckedDataset::check_label(std::int64_t label, std::int64_t sample) const {
  if (label < 0 || label >= classes_) {
    fail("sample ", sample, " has the label ", label, ", expected 0 to ", classes_ - 1);
  }
  if (labels_.empty()) return;
  if (const auto listed = labels_[static_cast<std::size_t>(sample)]; listed != label) {
    fail("sample ", sample, " has the label ", label, " in read() and ", listed, " in labels()");
  }
}

std::vector<std::int64_t> CheckedDataset::labels() const {
  std::vector<std::int64_t> labels = data_->labels();
  check_length("labels", labels.size(), num_train() + num_test());
  for (std::size_t s = 0; s < labels.size(); ++s) {
    check_label(labels[s], static_cast<std::int64_t>(s));
  }
  labels_ = labels;
  return labels;
}

void CheckedDataset::check_tensor(const char* what, const Tensor& found,
                                  const std::vector<std::int64_t>& sizes,
                                  const std::vector<at::ScalarType>& types) const {
  const auto expected = [&] {
    return concat(", expected ", names_of(types), " of sizes ", at::IntArrayRef(sizes));
  };
  if (!found.defined()) fail("read() gave no ", what, expected());
  const bool right_type = std::ranges::find(types, found.scalar_type()) != types.end();
  if (found.sizes() != at::IntArrayRef(sizes) || !right_type || !found.device().is_cpu()) {
    fail("read() gave ", what, " ", at::toString(found.scalar_type()), " of sizes ", found.sizes(),
         found.device().is_cpu() ? "" : " on a device", expected());
  }
  if (!found.is_contiguous()) fail("read() gave ", what, " that are not contiguous");
}

void CheckedDataset::check_finite(const char* what, const Tensor& found,
                                  std::span<const std::int64_t> ids) const {
  if (found.scalar_type() != at::kDouble) return;
  const auto* number = found.const_data_ptr<double>();
  const std::int64_t width = found.size(1);
  for (std::int64_t i = 0; i < found.numel(); ++i) {
    if (std::isfinite(number[i])) continue;
    fail("sample ", ids[i / width], " has the ", what, " ", number[i], " at place ", i % width,
         ", expected a finite number");
  }
}

void CheckedDataset::check_whole_targets(const Tensor& targets,
                                         std::span<const std::int64_t> ids) const {
  const std::vector<std::int64_t>& values = targets_.values;
  const bool all_between = values.back() - values.front() + 1 == std::ssize(values);
  const auto* target = targets.const_data_ptr<std::int64_t>();
  for (const std::int64_t id : ids) {
    for (std::int64_t place = 0; place < targets_.count; ++place, ++target) {
      const bool within = values.front() <= *target && *target <= values.back();
      if (within && (all_between || std::ranges::binary_search(values, *target))) continue;
      fail("sample ", id, " has the target ", *target, " at place ", place,
           ", expected one of the values that targets() names");
    }
  }
}

Samples CheckedDataset::read(std::span<const std::int64_t> ids) const {
  Samples samples = data_->read(ids);
  const auto count = static_cast<std::int64_t>(ids.size());
  check_tensor("features", samples.features, {count, features_}, {at::kByte, at::kDouble});
  check_finite("feature", samples.features, ids);
  check_tensor("labels", samples.labels, {count}, {at::kLong});
  const auto* labels = samples.labels.const_data_ptr<std::int64_t>();
  for (std::size_t s = 0; s < ids.size(); ++s) check_label(labels[s], ids[s]);
  switch (targets_.kind) {
    case Targets::Kind::Label:
      if (samples.targets.defined()) fail("read() gave targets, which targets() does not name");
      break;
    case Targets::Kind::Whole:
      check_tensor("targets", samples.targets, {count, targets_.count}, {at::kLong});
      check_whole_targets(samples.targets, ids);
      break;
    case Targets::Kind::Numbers:
      check_tensor("targets", samples.targets, {count, targets_.count}, {at::kDouble});
      check_finite("target", samples.targets, ids);
      break;
  }
  return samples;
}

std::vector<std::int64_t> CheckedDataset::natural_clients() const {
  std::vector<std::int64_t> clients = data_->natural_clients();
  if (clients.empty()) return clients;
  check_length("natural_clients", clients.size(), num_train() + num_test());
  const auto below = std::ranges::find_if(clients, [](auto client) { return client < 0; });
  if (below != clients.end()) {
    fail("sample ", below - clients.begin(), " is of the natural client ", *below,
         ", expected 0 or above");
  }
  return clients;
}

}  // namespace fedhpc
