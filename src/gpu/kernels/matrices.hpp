#pragma once

#include "fedhpc/math/device_kernels.hpp"

#include "gpu/kernels/kernel.hpp"

namespace fedhpc::kernels {

/// op(X) of all clients, typed.
template <typename T>
struct Matrices {
  T* data;
  std::int64_t stack_stride;
  std::int64_t row_stride;
  bool transposed;

  explicit Matrices(const DeviceMatrices& of)
      : data(static_cast<T*>(of.data)),
        stack_stride(of.stack_stride),
        row_stride(of.row_stride),
        transposed(of.transposed) {}

  FEDHPC_KERNEL T* operator()(std::int64_t c, std::int64_t i, std::int64_t j) const {
    return data + c * stack_stride + (transposed ? j * row_stride + i : i * row_stride + j);
  }
};

}  // namespace fedhpc::kernels
