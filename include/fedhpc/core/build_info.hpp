#pragma once

#include <string>

namespace fedhpc {

/// The parts of this build, for --version, the start-up table and the result file.
struct BuildInfo {
  std::string version;   ///< "0.1.0"
  std::string commit;    ///< 12 hex digits, "-modified" when the tree had changes
  std::string torch;     ///< version of LibTorch
  std::string compiler;  ///< name, version, build type, -march
  std::string nccl;      ///< "nccl-" and the version, or "no nccl"
};

BuildInfo build_info();

}  // namespace fedhpc
