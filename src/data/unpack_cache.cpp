#include "data/unpack_cache.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

#include <lzma.h>

#include "fedhpc/data/dataset.hpp"

namespace fedhpc {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kWorthwhile = std::size_t{4} << 20;  // bytes
constexpr std::size_t kHeader = 256;                       // bytes before the content

std::uint64_t digest_of(std::span<const std::uint8_t> bytes) {
  return lzma_crc64(bytes.data(), bytes.size(), 0);
}

/// What a copy of a file begins with, up to the digest; empty if there is no such file.
std::string start_of_header(const std::string& path, std::size_t count) {
  struct stat of_file {};
  if (stat(path.c_str(), &of_file) != 0) return {};
  std::array<char, kHeader> text{};
  std::snprintf(text.data(), text.size(),
                "fedhpc copy: of %lld bytes, changed %lld.%09ld; %zu bytes, CRC-64/XZ ",
                static_cast<long long>(of_file.st_size),
                static_cast<long long>(of_file.st_mtim.tv_sec), of_file.st_mtim.tv_nsec, count);
  return text.data();
}

/// The whole of it, filled up with zeros.
std::string header_of(const std::string& start, std::span<const std::uint8_t> content) {
  char digest[20];
  std::snprintf(digest, sizeof digest, "%016llx\n",
                static_cast<unsigned long long>(digest_of(content)));
  std::string header = start + digest;
  header.resize(kHeader, '\0');
  return header;
}

std::string value_of(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

/// Where a copy in a folder for copies of any files stands.
fs::path in_folder(const fs::path& folder, const std::string& path) {
  const std::string whole = fs::absolute(path).lexically_normal().string();
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(whole.data());
  char mark[24];
  std::snprintf(mark, sizeof mark, "%016llx-",
                static_cast<unsigned long long>(digest_of({bytes, whole.size()})));
  return folder / (mark + fs::path(path).filename().string() + ".unpacked");
}

/// Where a copy may stand, the best place first.
std::vector<fs::path> places(const std::string& path) {
  const std::string wanted = value_of("FEDHPC_CACHE");
  if (wanted == "off") return {};
  if (!wanted.empty()) return {in_folder(wanted, path)};
  std::vector<fs::path> found{path + ".unpacked"};
  const fs::path caches = value_of("XDG_CACHE_HOME");
  const fs::path home = value_of("HOME");
  if (caches.is_absolute()) {
    found.push_back(in_folder(caches / "fedhpc", path));
  } else if (home.is_absolute()) {
    found.push_back(in_folder(home / ".cache" / "fedhpc", path));
  }
  return found;
}

/// Whether files may be made in a folder. One that nobody may write is left alone by root too.
bool writable(const fs::path& folder) {
  constexpr fs::perms kWrite =
      fs::perms::owner_write | fs::perms::group_write | fs::perms::others_write;
  std::error_code failed;
  const fs::perms allowed = fs::status(folder, failed).permissions();
  return !failed && (allowed & kWrite) != fs::perms::none && access(folder.c_str(), W_OK) == 0;
}

bool write_copy(const fs::path& place, const std::string& header,
                std::span<const std::uint8_t> content) {
  std::string unfinished = place.string() + ".XXXXXX";
  const int descriptor = mkstemp(unfinished.data());
  if (descriptor < 0) return false;
  constexpr mode_t kForAll = 0644;
  fchmod(descriptor, kForAll);
  close(descriptor);
  std::ofstream stream(unfinished, std::ios::binary);
  stream.write(header.data(), static_cast<std::streamsize>(header.size()));
  stream.write(reinterpret_cast<const char*>(content.data()),
               static_cast<std::streamsize>(content.size()));
  stream.close();
  std::error_code failed;
  if (stream) fs::rename(unfinished, place, failed);
  if (stream && !failed) return true;
  fs::remove(unfinished, failed);
  return false;
}

std::mutex mutex_of_folders;
std::set<std::string> folders;  // of copies made by this process

}  // namespace

std::optional<std::vector<std::uint8_t>> unpacked_copy(const std::string& path) {
  for (const fs::path& place : places(path)) {
    std::error_code failed;
    const std::uintmax_t size = fs::file_size(place, failed);
    if (failed || size < kHeader) continue;
    std::ifstream stream(place, std::ios::binary);
    std::string header(kHeader, '\0');
    stream.read(header.data(), kHeader);
    const std::string start = start_of_header(path, size - kHeader);
    if (start.empty() || !header.starts_with(start)) continue;
    std::vector<std::uint8_t> content(size - kHeader);
    stream.read(reinterpret_cast<char*>(content.data()),
                static_cast<std::streamsize>(content.size()));
    if (stream && header == header_of(start, content)) return content;
  }
  return std::nullopt;
}

void keep_unpacked(const std::string& path, std::span<const std::uint8_t> content) {
  if (content.size() < kWorthwhile) return;
  const std::string start = start_of_header(path, content.size());
  if (start.empty()) return;
  const std::string header = header_of(start, content);
  for (const fs::path& place : places(path)) {
    const fs::path folder = fs::absolute(place).parent_path();
    std::error_code failed;
    if (place != path + ".unpacked") fs::create_directories(folder, failed);
    if (!writable(folder) || !write_copy(place, header, content)) continue;
    const std::lock_guard lock(mutex_of_folders);
    folders.insert(folder.string());
    return;
  }
}

std::vector<std::string> folders_of_copies() {
  const std::lock_guard lock(mutex_of_folders);
  return {folders.begin(), folders.end()};
}

}  // namespace fedhpc
