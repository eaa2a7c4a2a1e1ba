#include "fedhpc/training/device_constants.hpp"

#include "fedhpc/core/to_device.hpp"

namespace fedhpc {

const Range* DeviceConstants::ranges(const ColumnRanges& ranges, at::Device device) {
  static_assert(sizeof(Range) == 2 * sizeof(std::int64_t));
  Tensor& held = ranges_[ranges];
  if (!held.defined()) {
    std::vector<std::int64_t> ends;
    for (const Range& range : ranges) ends.insert(ends.end(), {range.first, range.last});
    held = to_device(ends, device);
  }
  return static_cast<const Range*>(held.const_data_ptr());
}

const double* DeviceConstants::number(double number, at::Device device) {
  Tensor& held = numbers_[number];
  if (!held.defined()) held = to_device(std::span<const double>(&number, 1), device);
  return held.const_data_ptr<double>();
}

}  // namespace fedhpc
