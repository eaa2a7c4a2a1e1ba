#pragma once

#include <cstdint>

#include "fedhpc/core/device_kernels.hpp"
#include "fedhpc/math/device_kernels.hpp"

// The kernels of this room on a device; fedhpc/core/device_kernels.hpp says what all keep.

namespace fedhpc {

/// out[c, o, r] = sum over s of g[c, s, o, r] factor[c, s, r], where g[c, s, o] is s inner_stride
/// behind sample o of client c of `g`.
struct DeviceContraction {
  DType type;
  DeviceStack g;  ///< [C, O, R]
  std::int64_t inner_stride = 0;
  DeviceStack factor;  ///< [C, S, R]
  DeviceStack out;     ///< [C, O, R]
};

/// out[c] = scale (own[c] other[c]^T - w[c]) other[c], [rows, rank], of own [rows, rank], other [columns,
/// rank] and w [rows, columns], which may be transposed. own other^T is rounded as a product in order is,
/// and what it leaves of w is never in the device's memory. Sums go in the order of the columns.
struct DeviceResidualProduct {
  DType type;
  std::int64_t count = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t rank = 0;
  double scale = 1;
  DeviceMatrices own;
  DeviceMatrices other;
  DeviceMatrices w;
  DeviceMatrices out;
};

/// What composes factors on a device.
class FactorKernels {
 public:
  virtual ~FactorKernels() = default;

  virtual void contract(const DeviceContraction&) = 0;
  virtual void residual_product(const DeviceResidualProduct&) = 0;
};

}  // namespace fedhpc
