#pragma once

#include <cstdint>

#include "fedhpc/core/device_kernels.hpp"
#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

/// What sums may depend on (run.reproducible).
enum class Summation {
  Fast,         ///< in their last bits on how the work is cut: into ranks, blocks and calls
  Reproducible  ///< on the numbers alone: sums over clients are exact, a device's products go in the
                ///< order of their inner index, a client is scored beside no other
};

/// How products and convolutions are taken.
struct Arithmetic {
  Precision precision = Precision::Fp32;  ///< of their factors
  Summation summation = Summation::Fast;
};

/// Where and how a run computes: one value, given to all that draw, sum or make tensors. (Factors'
/// precision is a key of local training, and who talks to whom is the Topology's.)
struct Context {
  at::ScalarType type = at::kFloat;  ///< of rows and activations
  at::Device device = at::kCPU;      ///< that has them
  Summation summation = Summation::Fast;
  std::uint64_t seed = 0;  ///< run.seed, the first word of every draw's key

  at::TensorOptions options() const { return at::TensorOptions(type).device(device); }
};

}  // namespace fedhpc
