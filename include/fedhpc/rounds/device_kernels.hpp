#pragma once

#include <cstdint>

#include "fedhpc/core/device_kernels.hpp"

// The kernels of this room on a device; fedhpc/core/device_kernels.hpp says what all keep.

namespace fedhpc {

/// sums[segments[c], i] += weights[c] rows[c, i], a row of weight 0 not being read, in order of c;
/// sums[s, columns] += the weights.
struct DeviceWeightedSum {
  DType type;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  DeviceColumns values;
  const std::int64_t* segments = nullptr;  ///< [rows]
  const double* weights = nullptr;         ///< [rows]
  std::int64_t segment_count = 0;
  double* sums = nullptr;  ///< [segment_count, columns + 1]
};

/// Sums over clients on a device.
class RoundKernels {
 public:
  virtual ~RoundKernels() = default;

  virtual void add_weighted(const DeviceWeightedSum&) = 0;
};

}  // namespace fedhpc
