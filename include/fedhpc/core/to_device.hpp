#pragma once

#include <cstdint>
#include <span>

#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

/// Copies a tensor of the host to a device, enqueued on the current stream by way of pinned memory:
/// the host does not wait. Returns the tensor itself where the device is the host.
Tensor to_device(const Tensor& values, at::Device device);

/// Copies numbers to a tensor [n] on a device in the same way.
Tensor to_device(std::span<const std::int64_t> numbers, at::Device device);
Tensor to_device(std::span<const double> numbers, at::Device device);

}  // namespace fedhpc
