#pragma once

#include <string>

namespace fedhpc {

/// Loads a module of functions for GPUs and returns the address of one of its functions. It lies
/// beside the program, above a test in the build folder, or where it is installed. The environment
/// variable FEDHPC_GPU_MODULE names another one in the place of all. Throws Error with the reason
/// if this build has none or it cannot be loaded.
void* gpu_module_function(const std::string& module, const std::string& function);

}  // namespace fedhpc
