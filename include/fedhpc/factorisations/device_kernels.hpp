#pragma once

#include <cstdint>

#include "fedhpc/core/device_kernels.hpp"

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

/// What composes factors on a device.
class FactorKernels {
 public:
  virtual ~FactorKernels() = default;

  virtual void contract(const DeviceContraction&) = 0;
};

}  // namespace fedhpc
