#include "fedhpc/core/device_kernels.hpp"

#include "core/gpu_module.hpp"

namespace fedhpc {

DeviceKernels& device_kernels() {
  using Entry = DeviceKernels* (*)();
  static DeviceKernels& kernels = *reinterpret_cast<Entry>(
      gpu_module_function("libfedhpc_kernels.so", "fedhpc_device_kernels"))();
  return kernels;
}

}  // namespace fedhpc
