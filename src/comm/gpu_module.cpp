#include "core/gpu_module.hpp"

#include "fedhpc/comm/gpu_library.hpp"

namespace fedhpc {

GpuLibrary& gpu_library() {
  using Entry = GpuLibrary* (*)();
  static GpuLibrary& library =
      *reinterpret_cast<Entry>(gpu_module_function("libfedhpc_gpu.so", "fedhpc_gpu_library"))();
  return library;
}

}  // namespace fedhpc
