#include "fedhpc/core/build_info.hpp"

#include "build_info_values.hpp"

namespace fedhpc {

BuildInfo build_info() {
  return {.version = FEDHPC_BUILD_VERSION,
          .commit = FEDHPC_BUILD_COMMIT,
          .torch = FEDHPC_BUILD_TORCH,
          .compiler = FEDHPC_BUILD_COMPILER " " FEDHPC_BUILD_TYPE " -march=" FEDHPC_BUILD_MARCH,
          .nccl = FEDHPC_BUILD_NCCL};
}

}  // namespace fedhpc
