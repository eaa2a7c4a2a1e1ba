#pragma once

#include <cstdint>
#include <cstring>

#include "fedhpc/core/device_kernels.hpp"

// Rounds a factor of a product to train.precision, on the host and in kernels of a device.

#if defined(__CUDACC__)
#define FEDHPC_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define FEDHPC_HOST_DEVICE inline
#endif

namespace fedhpc {

/// The number of a float32's 23 bits of fraction that a factor of this precision lacks.
inline int missing_bits(Precision precision) {
  return precision == Precision::Fp32 ? 0 : precision == Precision::Tf32 ? 13 : 16;
}

/// Rounds the last bits of a float32's fraction away, to nearest with ties to even.
FEDHPC_HOST_DEVICE float without_bits(float value, int bits) {
  std::uint32_t pattern = 0;
  std::memcpy(&pattern, &value, sizeof pattern);
  constexpr std::uint32_t kExponent = 0x7f800000;
  if (bits == 0 || (pattern & kExponent) == kExponent) return value;  // infinite or NaN
  pattern += (std::uint32_t{1} << (bits - 1)) - 1 + (pattern >> bits & 1);
  pattern = pattern >> bits << bits;
  std::memcpy(&value, &pattern, sizeof pattern);
  return value;
}
FEDHPC_HOST_DEVICE double without_bits(double value, int) { return value; }

}  // namespace fedhpc
