#include "fedhpc/io/durable.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <limits>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

// f_type of statfs(2): nfs, smb, cifs, smb2, afs, coda, 9p, fuse.
constexpr std::array<unsigned, 8> kRelaxed{0x6969,     0x517b,     0xff534d42, 0xfe534d42,
                                           0x5346414f, 0x73757245, 0x01021997, 0x65735546};

void to_disk(const std::string& path, int flags) {
  const int descriptor = open(path.c_str(), flags | O_CLOEXEC);
  const bool written = descriptor >= 0 && fsync(descriptor) == 0;
  const int reason = errno;
  if (descriptor >= 0) close(descriptor);
  // Some file systems cannot sync a folder and say so; their renames are then as good as they get.
  if (written || (flags == (O_RDONLY | O_DIRECTORY) && reason == EINVAL)) return;
  throw Error(concat("'", path, "' cannot be written to disk: ", std::strerror(reason)));
}

}  // namespace

std::string link_target(const std::string& path) {
  std::error_code failed;
  if (!std::filesystem::is_symlink(path, failed)) return path;
  // The target need not be there yet, so that its links are followed one by one.
  constexpr int kMostLinks = 40;
  std::filesystem::path target = path;
  for (int i = 0; std::filesystem::is_symlink(target, failed); ++i) {
    if (i == kMostLinks) throw Error(concat("'", path, "' is a link that leads nowhere"));
    target = target.parent_path() / std::filesystem::read_symlink(target, failed);
    if (failed) return path;
  }
  target = std::filesystem::weakly_canonical(target, failed);
  return failed ? path : target.string();
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

void replace_file(const std::string& finished, const std::string& path) {
  to_disk(finished, O_RDONLY);
  if (std::rename(finished.c_str(), path.c_str()) != 0) {
    throw Error(
        concat("'", finished, "' cannot be renamed to '", path, "': ", std::strerror(errno)));
  }
  to_disk(folder_of(path), O_RDONLY | O_DIRECTORY);
}

Unfinished::~Unfinished() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove(path_, ignored);
}

void Unfinished::finish(const std::string& path) {
  replace_file(path_, path);
  path_.clear();
}

std::int64_t free_bytes(const std::string& folder) {
  struct statvfs info {};
  const bool told = statvfs(folder.c_str(), &info) == 0 && info.f_blocks > 0;
  if (!told) return std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize);
}

FileId id_of(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return {};
  return {static_cast<std::uint64_t>(info.st_dev), static_cast<std::uint64_t>(info.st_ino)};
}

std::int64_t bytes_of_file(const std::string& path) {
  std::error_code failed;
  const auto bytes = std::filesystem::file_size(path, failed);
  return failed ? 0 : static_cast<std::int64_t>(bytes);
}

bool keeps_write_order(const std::string& folder) {
  struct statfs info {};
  if (statfs(folder.c_str(), &info) != 0) return true;
  const auto type = static_cast<unsigned>(info.f_type);
  return std::find(kRelaxed.begin(), kRelaxed.end(), type) == kRelaxed.end();
}

}  // namespace fedhpc
