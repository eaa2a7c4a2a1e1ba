// File systems of clusters as faults_test.py wants them, preloaded into the program: one without locks
// (FEDHPC_TEST_FLOCK: the errno of every lock), and one over its quota that tells so late
// (FEDHPC_TEST_LOST: the end of a file's name; FEDHPC_TEST_TOLD: fsync or close, which of them tells).

#include <array>
#include <cerrno>
#include <cstdlib>
#include <dlfcn.h>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <unistd.h>

namespace {

constexpr std::size_t kLarge = 20000;  // bytes of a write that is lost
bool lost = false;

std::string_view wish(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

template <typename Call>
Call* real(const char* name) {
  return reinterpret_cast<Call*>(dlsym(RTLD_NEXT, name));
}

bool loses(int descriptor) {
  const std::string_view name = wish("FEDHPC_TEST_LOST");
  if (name.empty()) return false;
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = readlink(link.c_str(), path.data(), path.size());
  return length > 0 &&
         std::string_view(path.data(), static_cast<std::size_t>(length)).ends_with(name);
}

bool tells(const char* call, int descriptor) {
  if (!lost || wish("FEDHPC_TEST_TOLD") != call || !loses(descriptor)) return false;
  errno = EDQUOT;
  return true;
}

ssize_t write_at(const char* call, int descriptor, const void* bytes, std::size_t count, off_t at) {
  if (count >= kLarge && loses(descriptor)) {
    lost = true;
    return static_cast<ssize_t>(count);
  }
  return real<ssize_t(int, const void*, std::size_t, off_t)>(call)(descriptor, bytes, count, at);
}

}  // namespace

extern "C" {

int flock(int descriptor, int operation) {
  if (const std::string refusal(wish("FEDHPC_TEST_FLOCK")); !refusal.empty()) {
    errno = std::stoi(refusal);
    return -1;
  }
  return real<int(int, int)>("flock")(descriptor, operation);
}

int fsync(int descriptor) {
  return tells("fsync", descriptor) ? -1 : real<int(int)>("fsync")(descriptor);
}

int close(int descriptor) {
  const bool told = tells("close", descriptor);
  const int closed = real<int(int)>("close")(descriptor);
  if (told) errno = EDQUOT;
  return told ? -1 : closed;
}

ssize_t pwrite(int descriptor, const void* bytes, std::size_t count, off_t at) {
  return write_at("pwrite", descriptor, bytes, count, at);
}

ssize_t pwrite64(int descriptor, const void* bytes, std::size_t count, off64_t at) {
  return write_at("pwrite64", descriptor, bytes, count, at);
}

}  // extern "C"
