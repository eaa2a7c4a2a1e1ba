#include "fedhpc/io/file_lock.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <optional>
#include <sstream>
#include <sys/file.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

constexpr std::chrono::seconds kPatience{5};
constexpr std::chrono::milliseconds kPause{20};

std::string this_host() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

/// What a lock file says of the process that holds it.
struct Holder {
  pid_t process = 0;  // 0: nothing yet
  std::string host;
};

/// The holder that write_holder() has put into an open file, which may be empty; nothing where the
/// file is another's.
std::optional<Holder> read_holder(int descriptor) {
  std::array<char, 320> text{};
  const ssize_t size = pread(descriptor, text.data(), text.size() - 1, 0);
  if (size <= 0) return size == 0 ? std::optional(Holder{}) : std::nullopt;
  std::istringstream words(text.data());
  Holder holder;
  std::string more;
  const bool is_lock = text[static_cast<std::size_t>(size) - 1] == '\n' &&
                       words >> holder.process >> holder.host && !(words >> more);
  return is_lock ? std::optional(holder) : std::nullopt;
}

void write_holder(int descriptor) {
  const std::string text = concat(getpid(), ' ', this_host(), '\n');
  // It is for people alone: the lock holds without it, on a full disk too.
  if (ftruncate(descriptor, 0) != 0) return;
  static_cast<void>(pwrite(descriptor, text.data(), text.size(), 0) < 0);
}

/// Whether a process of this host lives and is not about to end.
bool lives_on(pid_t process) {
  constexpr unsigned kExiting = 0x4;  // PF_EXITING of the kernel
  std::ifstream stat(concat("/proc/", process, "/stat"));
  std::string text;
  if (!std::getline(stat, text)) return false;
  // PID (NAME) STATE PARENT GROUP SESSION TERMINAL TERMINAL_GROUP FLAGS ...; a name may hold
  // anything.
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  char state = 'X';
  long skipped = 0;
  unsigned flags = 0;
  fields >> state;
  for (int i = 0; i < 5; ++i) fields >> skipped;
  fields >> flags;
  if (state == 'Z' || state == 'X' || (flags & kExiting) != 0) return false;
  std::ifstream status(concat("/proc/", process, "/status"));
  constexpr std::uint64_t kKilled = std::uint64_t{1} << (SIGKILL - 1);
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("SigPnd:") && !line.starts_with("ShdPnd:")) continue;
    if ((std::strtoull(line.c_str() + 7, nullptr, 16) & kKilled) != 0) return false;
  }
  return true;
}

bool is_file(int descriptor, const std::string& path) {
  struct stat opened {};
  struct stat named {};
  return fstat(descriptor, &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

}  // namespace

FileLock::FileLock(const std::string& path)
    : descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (descriptor_ >= 0) flock(descriptor_, LOCK_SH | LOCK_NB);
}

FileLock::FileLock(FileLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  FileLock taken(std::move(other));
  std::swap(descriptor_, taken.descriptor_);
  return *this;
}

FileLock::~FileLock() {
  if (descriptor_ >= 0) close(descriptor_);  // releases the lock
}

namespace {

/// Why an existing file cannot be locked now; 0 where it can.
int lock_refusal(const std::string& path, int kind) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return 0;
  const int refusal = flock(descriptor, kind | LOCK_NB) != 0 ? errno : 0;
  close(descriptor);
  return refusal;
}

}  // namespace

bool has_locks(const std::string& path) {
  const int refusal = lock_refusal(path, LOCK_SH);
  return refusal == 0 || refusal == EWOULDBLOCK;
}

bool is_locked(const std::string& path) { return lock_refusal(path, LOCK_EX) == EWOULDBLOCK; }

LockFile::LockFile(std::string path) : path_(std::move(path)) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (;; std::this_thread::sleep_for(kPause)) {
    const int descriptor = open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    const std::optional<Holder> holder = descriptor >= 0 ? read_holder(descriptor) : Holder{};
    if (!holder) {
      close(descriptor);
      state_ = State::NoFile;
      reason_ = "another file has this name";
      return;
    }
    const bool locked = descriptor >= 0 && flock(descriptor, LOCK_EX | LOCK_NB) == 0;
    const int error = errno;
    if (locked && is_file(descriptor, path_)) {
      taken_over_ = lseek(descriptor, 0, SEEK_END) > 0;
      write_holder(descriptor);
      descriptor_ = descriptor;
      state_ = State::Held;
      return;
    }
    if (descriptor >= 0) close(descriptor);
    if (locked)
      continue;  // its last holder has removed it meanwhile: no longer the one of this name
    if (error != EWOULDBLOCK) {
      if (descriptor >= 0) unlink(path_.c_str());
      state_ = descriptor >= 0 ? State::NoLocks : State::NoFile;
      reason_ = std::strerror(error);
      return;
    }
    const bool known = holder->process > 0;
    const bool lives = known && holder->host == this_host() && lives_on(holder->process);
    if (!lives && std::chrono::steady_clock::now() < end) continue;
    state_ = State::Taken;
    reason_ = known ? concat("process ", holder->process, " on ", holder->host) : "another process";
    return;
  }
}

LockFile::LockFile(LockFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      state_(std::exchange(other.state_, State::None)),
      reason_(std::move(other.reason_)),
      taken_over_(std::exchange(other.taken_over_, false)) {}

LockFile& LockFile::operator=(LockFile&& other) noexcept {
  LockFile taken(std::move(other));
  std::swap(path_, taken.path_);
  std::swap(descriptor_, taken.descriptor_);
  std::swap(state_, taken.state_);
  std::swap(reason_, taken.reason_);
  std::swap(taken_over_, taken.taken_over_);
  return *this;
}

LockFile::~LockFile() {
  if (descriptor_ < 0) return;
  // Removed while it is locked: whoever opened it before sees that it is no longer the one of this
  // name.
  if (is_file(descriptor_, path_)) unlink(path_.c_str());
  close(descriptor_);
}

}  // namespace fedhpc
