#include "fedhpc/training/device_constants.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

namespace fedhpc {

const Range* DeviceConstants::ranges(const ColumnRanges& ranges, at::Device device) {
  static_assert(sizeof(Range) == 2 * sizeof(std::int64_t));
  Tensor& held = ranges_[ranges];
  if (!held.defined()) {
    std::vector<std::int64_t> ends;
    for (const Range& range : ranges) ends.insert(ends.end(), {range.first, range.last});
    held = at::tensor(ends, at::kLong).to(device);
  }
  return static_cast<const Range*>(held.const_data_ptr());
}

const double* DeviceConstants::number(double number, at::Device device) {
  Tensor& held = numbers_[number];
  if (!held.defined()) held = at::full({1}, number, at::kDouble).to(device);
  return held.const_data_ptr<double>();
}

}  // namespace fedhpc
