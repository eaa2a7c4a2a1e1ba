#pragma once

#include <map>

#include "fedhpc/core/range.hpp"
#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

/// Small constants that kernels read in a device's memory. Each is copied there once, without a
/// wait, and stays as long as this, so that captured work may hold its address.
class DeviceConstants {
 public:
  const Range* ranges(const ColumnRanges& ranges, at::Device device);
  const double* number(double number, at::Device device);  ///< for instance a rate

 private:
  std::map<ColumnRanges, Tensor> ranges_;
  std::map<double, Tensor> numbers_;
};

}  // namespace fedhpc
