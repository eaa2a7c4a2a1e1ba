#pragma once

#include <string>

namespace fedhpc {

/// A shared lock on a file from construction to destruction: readers may come, a run that wants to
/// overwrite the file sees it with is_locked(). HDF5 drops its own lock when SWMR starts. Where the
/// file system has no locks, this does nothing.
class FileLock {
 public:
  FileLock() = default;
  explicit FileLock(const std::string& path);
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

 private:
  int descriptor_ = -1;
};

/// Whether some process, this one included, holds a lock on an existing file.
bool is_locked(const std::string& path);

}  // namespace fedhpc
