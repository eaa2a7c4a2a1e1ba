#pragma once

#include <vector>

#include "fedhpc/core/tensor.hpp"
#include "fedhpc/io/hdf5.hpp"

namespace fedhpc {

/// What a data set of these values is: of int64, float64 or else float32.
inline hid_t type_of(const Tensor& values) {
  if (values.scalar_type() == at::kLong) return h5::type_of<std::int64_t>();
  return values.scalar_type() == at::kDouble ? h5::type_of<double>() : h5::type_of<float>();
}

inline std::vector<hsize_t> shape_of(const Tensor& values) {
  return {values.sizes().begin(), values.sizes().end()};
}

}  // namespace fedhpc
