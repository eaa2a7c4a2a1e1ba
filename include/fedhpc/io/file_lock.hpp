#pragma once

#include <string>

namespace fedhpc {

/// Holds a shared lock on a file from construction to destruction. Readers may come; a run that
/// wants to overwrite the file sees the lock with is_locked(). HDF5 drops its own lock when SWMR
/// starts. Where the file system has no locks, this does nothing.
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

/// False where the file system of an existing file has no locks, as NFS without their service.
bool has_locks(const std::string& path);

/// True if some process, this one included, holds a lock on an existing file.
bool is_locked(const std::string& path);

/// Holds an exclusive lock by a file made for it alone, from construction to destruction, which
/// removes the file. The kernel lets the lock go when the process ends in any way. The file that a
/// killed process leaves behind locks nothing, and the next one takes it over.
class LockFile {
 public:
  enum class State {
    None,     ///< nothing was tried
    Held,     ///< by this object
    Taken,    ///< by another process
    NoFile,   ///< no such file can be made here, or another one has its name
    NoLocks,  ///< the file system has none
  };

  LockFile() = default;
  /// Tries at once; for some seconds where the holder is ending, or cannot be seen from this host.
  /// A process just killed may still be on its way out.
  explicit LockFile(std::string path);
  LockFile(LockFile&& other) noexcept;
  LockFile& operator=(LockFile&& other) noexcept;
  ~LockFile();

  State state() const { return state_; }
  const std::string& path() const { return path_; }
  /// Taken: the holder, as "process 123 on node7"; NoFile, NoLocks: the cause.
  const std::string& reason() const { return reason_; }
  /// True if this holds a lock left behind by a process that was killed.
  bool taken_over() const { return taken_over_; }

 private:
  std::string path_;
  int descriptor_ = -1;
  State state_ = State::None;
  std::string reason_;
  bool taken_over_ = false;
};

}  // namespace fedhpc
