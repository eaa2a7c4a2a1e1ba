#include "data/byte_source.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>

#include "fedhpc/core/error.hpp"
#include "fedhpc/core/options.hpp"

#include "data/unpack.hpp"
#include "data/unpack_cache.hpp"

namespace fedhpc {

namespace {

std::vector<std::uint8_t> read_plain(const std::string& path) {
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (!stream || error) {
    const std::string reason = error ? error.message() : std::strerror(errno);
    throw DataError(concat("data file '", path, "' cannot be read: ", reason));
  }
  std::vector<std::uint8_t> bytes(size);
  stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (stream.gcount() != static_cast<std::streamsize>(size)) {
    throw DataError(concat("data file '", path, "' cannot be read beyond offset ", stream.gcount(),
                           " of ", size));
  }
  return bytes;
}

}  // namespace

std::vector<std::uint8_t> read_bytes(const std::string& path) {
  if (path.ends_with(".gz")) return unpack_gzip(read_plain(path), path);
  if (!path.ends_with(".xz")) return read_plain(path);
  if (auto copy = unpacked_copy(path)) return std::move(*copy);
  std::vector<std::uint8_t> content = unpack_xz(read_plain(path), path);
  keep_unpacked(path, content);
  return content;
}

std::vector<std::vector<std::uint8_t>> read_bytes(const std::vector<std::string>& paths) {
  using Bytes = std::vector<std::uint8_t>;
  std::vector<std::future<Bytes>> readers;
  for (const std::string& path : paths) {
    readers.push_back(std::async(std::launch::async, [&path] { return read_bytes(path); }));
  }
  std::vector<Bytes> contents;  // or the error of the first bad file
  for (std::future<Bytes>& reader : readers) contents.push_back(reader.get());
  return contents;
}

std::string locate(const std::string& directory, const std::string& folder, const std::string& name,
                   const std::string& dataset) {
  const std::filesystem::path root(directory);
  std::vector<std::string> candidates;
  for (const auto& place : {root / folder / name, root / name}) {
    for (const char* packing : {"", ".gz", ".xz"}) candidates.push_back(place.string() + packing);
  }
  std::string refused;
  for (const std::string& path : candidates) {
    std::error_code failed;
    const std::filesystem::file_status status = std::filesystem::status(path, failed);
    if (std::filesystem::is_regular_file(status)) return path;
    if (!std::filesystem::status_known(status) && refused.empty()) {
      refused = concat(" ('", path, "': ", failed.message(), ")");
    }
  }
  throw DataError(concat("data set ", dataset, ": file not found; tried ", join(candidates),
                         refused, "; get it with 'tools/fetch_data.py ", dataset,
                         "' or set data.dir to the folder that holds it"));
}

}  // namespace fedhpc
