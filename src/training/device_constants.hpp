#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "fedhpc/core/tensor.hpp"

// Small constants that kernels read in a device's memory. Each is copied there once and stays to
// the end of the process, so that captured work may hold its address.

namespace fedhpc {

/// Ranges of columns as DeviceRange, [n, 2] int64.
const Tensor& device_ranges(const std::vector<std::pair<std::int64_t, std::int64_t>>& ranges,
                            at::Device device);

/// One float64 number, for instance a rate.
const double* device_number(double number, at::Device device);

}  // namespace fedhpc
