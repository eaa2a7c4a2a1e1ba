#include "fedhpc/core/to_device.hpp"

#include <algorithm>

#include <ATen/ops/empty.h>

namespace fedhpc {

namespace {

template <typename T>
Tensor uploaded(std::span<const T> numbers, at::Device device) {
  const auto options = at::TensorOptions(c10::CppTypeToScalarType<T>::value)
                           .pinned_memory(!device.is_cpu() && !numbers.empty());
  const Tensor host = at::empty({static_cast<std::int64_t>(numbers.size())}, options);
  std::copy(numbers.begin(), numbers.end(), host.data_ptr<T>());
  return host.to(device, /*non_blocking=*/true);
}

}  // namespace

Tensor to_device(const Tensor& values, at::Device device) {
  if (device.is_cpu()) return values;
  if (values.numel() == 0 || device.is_meta())
    return at::empty(values.sizes(), values.options().device(device));
  const Tensor pinned = at::empty(values.sizes(), values.options().pinned_memory(true));
  pinned.copy_(values);
  return pinned.to(device, /*non_blocking=*/true);
}

Tensor to_device(std::span<const std::int64_t> numbers, at::Device device) {
  return uploaded(numbers, device);
}

Tensor to_device(std::span<const double> numbers, at::Device device) {
  return uploaded(numbers, device);
}

}  // namespace fedhpc
