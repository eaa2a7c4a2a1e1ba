#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "fedhpc/core/device_kernels.hpp"
#include "fedhpc/core/error.hpp"

namespace fedhpc {

using at::Tensor;

inline at::ScalarType scalar_type(DType dtype) {
  return dtype == DType::Float64 ? at::kDouble : at::kFloat;
}

/// Calls `work.operator()<T>()` with T = float or double after the element type.
template <typename Work>
decltype(auto) with_type(at::ScalarType type, Work&& work) {
  if (type == at::kDouble) return work.template operator()<double>();
  require(type == at::kFloat, "weights are float32 or float64");
  return work.template operator()<float>();
}

}  // namespace fedhpc
