#include <dlfcn.h>
#include <filesystem>
#include <string>
#include <system_error>

#include "fedhpc/comm/gpu_library.hpp"
#include "fedhpc/core/build_info.hpp"

namespace fedhpc {

namespace {

constexpr const char* kModule = "libfedhpc_gpu.so";

/// Where the module lies: beside the program or above a test in the build folder, or installed.
std::filesystem::path find_module() {
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const char* place : {".", "..", "../lib/fedhpc"}) {
    const std::filesystem::path module = program / place / kModule;
    if (std::filesystem::exists(module, ignored)) return module;
  }
  throw Error(
      concat(kModule, " is neither beside ", program.string(), " nor in its ../lib/fedhpc"));
}

GpuLibrary& load() {
  if (build_info().nccl == "no nccl") throw Error("this build has no CUDA");
  const std::filesystem::path path = find_module();
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) throw Error(concat("cannot load ", path.string(), ": ", dlerror()));
  using Entry = GpuLibrary* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(module, "fedhpc_gpu_library"));
  if (entry == nullptr) throw Error(concat(path.string(), " is no module of fedhpc"));
  return *entry();
}

}  // namespace

GpuLibrary& gpu_library() {
  static GpuLibrary& library = load();
  return library;
}

}  // namespace fedhpc
