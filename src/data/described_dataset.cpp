#include "data/described_dataset.hpp"

#include <numeric>
#include <set>

#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

namespace fedhpc {

Tensor numbers_as_targets(const std::vector<double>& train, const std::vector<double>& test) {
  std::vector<double> numbers = train;
  numbers.insert(numbers.end(), test.begin(), test.end());
  return at::tensor(numbers, at::kDouble).unsqueeze(1);
}

Targets targets_of(const Tensor& targets) {
  if (!targets.defined()) return {};
  Targets of{.count = targets.size(1)};
  if (targets.scalar_type() == at::kDouble) {
    of.kind = Targets::Kind::Numbers;
    const auto* values = targets.const_data_ptr<double>();
    of.mean_square = std::inner_product(values, values + targets.numel(), values, 0.0) /
                     static_cast<double>(targets.numel());
    return of;
  }
  of.kind = Targets::Kind::Whole;
  const auto* values = targets.const_data_ptr<std::int64_t>();
  const std::set<std::int64_t> different(values, values + targets.numel());
  of.values.assign(different.begin(), different.end());
  return of;
}

Samples DescribedDataset::read(std::span<const std::int64_t> ids) const {
  Samples samples = data_->read(ids);
  if (description_.targets.defined()) {
    const Tensor rows = at::tensor(at::ArrayRef<std::int64_t>(ids.data(), ids.size()), at::kLong);
    samples.targets = at::index_select(description_.targets, 0, rows);
  }
  return samples;
}

}  // namespace fedhpc
