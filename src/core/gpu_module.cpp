#include "core/gpu_module.hpp"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <system_error>

#include "fedhpc/core/build_info.hpp"
#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

/// The folder of the library that this function is in.
std::filesystem::path own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0) return ".";
  std::error_code failed;
  const auto path = std::filesystem::canonical(info.dli_fname, failed);
  return failed ? "." : path.parent_path();
}

std::filesystem::path find_module(const std::string& module) {
  if (const char* chosen = std::getenv("FEDHPC_GPU_MODULE")) return chosen;
  if (build_info().nccl == "no nccl") throw Error("this build has no CUDA");
  std::error_code ignored;
  const std::filesystem::path library = own_folder();
  for (const char* place : {".", "fedhpc"}) {
    const std::filesystem::path path = library / place / module;
    if (std::filesystem::exists(path, ignored)) return path;
  }
  throw Error(concat(module, " is neither in ", library.string(),
                     ", where fedhpc's library is, nor in its fedhpc"));
}

}  // namespace

void* gpu_module_function(const std::string& module, const std::string& function) {
  const std::filesystem::path path = find_module(module);
  void* loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) {
    const std::string reason = dlerror();
    std::error_code ignored;
    const bool lacks = std::filesystem::exists(path, ignored);  // a library that it needs itself
    throw Error(concat(
        "cannot load ", path.string(), ": ", reason,
        lacks ? "; tools/setup.sh --cuda fetches what is missing, and for an installed Python "
                "package, pip install torch==" +
                    build_info().torch.substr(0, build_info().torch.find('+'))
              : ""));
  }
  void* address = dlsym(loaded, function.c_str());
  if (address == nullptr) throw Error(concat(path.string(), " is no module of fedhpc"));
  return address;
}

}  // namespace fedhpc
