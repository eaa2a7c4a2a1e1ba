#pragma once

#include <memory>

#include "fedhpc/core/device_kernels.hpp"
#include "fedhpc/math/device_kernels.hpp"

namespace fedhpc {

/// What of the kernel table is done by LibTorch and CUDA's libraries. It is apart from the kernels,
/// since nvcc need not see LibTorch's headers, nor the compiler CUDA's language.
class CudaLibraries {
 public:
  virtual ~CudaLibraries() = default;

  /// The calling thread's current stream, a cudaStream_t.
  virtual void* stream() = 0;
  virtual void product(const DeviceProduct& of) = 0;
  virtual std::unique_ptr<DeviceGraph> capture(const std::function<void()>& work) = 0;
  virtual void use_precision(Precision precision) = 0;
  virtual void forbid_waiting(bool forbidden) = 0;
  virtual void begin_range(const char* name) = 0;
  virtual void end_range() = 0;
};

/// The least compute capability that the kernels are compiled for: 80 is 8.0.
int least_capability();

/// The table with all kernels, launched on the device; `libraries` has to outlive it.
std::unique_ptr<DeviceKernels> make_cuda_table(CudaLibraries& libraries);

}  // namespace fedhpc
