#include "training/device_constants.hpp"

#include <map>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "fedhpc/core/device.hpp"

namespace fedhpc {

namespace {

using Ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// Never destroyed: at the end of the process the device may be gone before its memory is given
/// back.
template <typename Key>
std::map<Key, Tensor>& constants() {
  static auto* known = new std::map<Key, Tensor>();
  return *known;
}

}  // namespace

const Tensor& device_ranges(const Ranges& ranges, at::Device device) {
  Tensor& held = constants<Ranges>()[ranges];
  if (held.defined()) return held;
  static_assert(sizeof(DeviceRange) == 2 * sizeof(std::int64_t));
  const Tensor host = at::empty({static_cast<std::int64_t>(ranges.size()), 2}, at::kLong);
  auto* out = host.data_ptr<std::int64_t>();
  for (const auto& [begin, end] : ranges) {
    *out++ = begin;
    *out++ = end;
  }
  return held = host.to(device);
}

const double* device_number(double number, at::Device device) {
  Tensor& held = constants<double>()[number];
  if (!held.defined()) held = at::full({1}, number, at::kDouble).to(device);
  return held.const_data_ptr<double>();
}

}  // namespace fedhpc
