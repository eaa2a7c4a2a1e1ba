#pragma once

#include <filesystem>

namespace fedhpc {

/// `path` without . and .. where that is the same file: .. behind a link may lead elsewhere.
inline std::filesystem::path plain_path(const std::filesystem::path& path) {
  const std::filesystem::path plain = path.lexically_normal();
  std::error_code failed;
  const bool other =
      std::filesystem::exists(path, failed) && !std::filesystem::equivalent(path, plain, failed);
  return other ? path : plain;
}

}  // namespace fedhpc
