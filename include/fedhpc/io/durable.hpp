#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace fedhpc {

/// Returns the file a symbolic link stands for, which is replaced in its place; else the path.
std::string link_target(const std::string& path);

/// Puts a finished file in the place of `path`: to disk, then renamed, then the folder to disk.
/// After a power cut either the old or the new file is there, whole. Throws Error.
void replace_file(const std::string& finished, const std::string& path);

/// A file being written under a name that is not its own yet; removed unless it is finished.
class Unfinished {
 public:
  explicit Unfinished(std::string path) : path_(std::move(path)) {}
  ~Unfinished();
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

  const std::string& path() const { return path_; }
  /// Puts it in the place of `path`, as replace_file() does.
  void finish(const std::string& path);

 private:
  std::string path_;  // empty: finished
};

/// The bytes free for this user on the file system of a folder; a very large number where it does
/// not say.
std::int64_t free_bytes(const std::string& folder);

/// The identity of a file under whatever name: device and number; both 0 where there is none.
using FileId = std::pair<std::uint64_t, std::uint64_t>;
FileId id_of(const std::string& path);

/// The bytes of a file, 0 where there is none.
std::int64_t bytes_of_file(const std::string& path);

/// True if the file system of a folder keeps the order of writes that readers of a growing HDF5
/// file (SWMR) rely on. False over a network without shared caches (NFS, SMB, AFS, 9P), and where
/// the system behind it is unknown (FUSE).
bool keeps_write_order(const std::string& folder);

/// Returns the folder a path lies in, "." for a bare name.
std::string folder_of(const std::string& path);

}  // namespace fedhpc
