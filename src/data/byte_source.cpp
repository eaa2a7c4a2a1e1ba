#include "data/byte_source.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <zlib.h>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

constexpr int kGzipWindow = 15 + 16;  // largest window; expect a gzip header and check its CRC
constexpr std::size_t kLargestChunk = std::size_t{1} << 30;  // zlib counts in 32 bits

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

/// Owns zlib's state of one stream.
class Inflater {
 public:
  Inflater() {
    if (inflateInit2(&stream_, kGzipWindow) != Z_OK) throw Error("zlib cannot be initialised");
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  z_stream& stream() { return stream_; }

 private:
  z_stream stream_{};
};

/// Unpacks one gzip member starting at `begin`, appends it to `unpacked` and returns the offset
/// behind it.
std::size_t unpack_member(const std::string& path, std::vector<std::uint8_t>& packed,
                          std::size_t begin, std::vector<std::uint8_t>& unpacked) {
  Inflater inflater;
  z_stream& stream = inflater.stream();
  std::size_t in = begin;
  std::size_t out = unpacked.size();
  int status = Z_OK;
  while (status != Z_STREAM_END) {
    if (out == unpacked.size()) unpacked.resize(std::max<std::size_t>(out * 2, 1 << 16));
    const std::size_t offered = std::min(packed.size() - in, kLargestChunk);
    const std::size_t room = std::min(unpacked.size() - out, kLargestChunk);
    stream.next_in = packed.data() + in;
    stream.avail_in = static_cast<uInt>(offered);
    stream.next_out = unpacked.data() + out;
    stream.avail_out = static_cast<uInt>(room);
    status = inflate(&stream, Z_NO_FLUSH);
    in += offered - stream.avail_in;
    out += room - stream.avail_out;
    if (status == Z_STREAM_END) break;
    if (status != Z_OK && status != Z_BUF_ERROR) {
      throw DataError(
          concat("data file '", path, "' is corrupt at offset ", in, " of ", packed.size(), " (",
                 stream.msg != nullptr ? stream.msg : "not gzip data", "); fetch it again"));
    }
    if (in == packed.size() && out < unpacked.size()) {
      throw DataError(concat("data file '", path, "' is truncated: it ends at offset ", in,
                             " in the middle of its gzip data; fetch it again"));
    }
  }
  unpacked.resize(out);
  return in;
}

}  // namespace

std::vector<std::uint8_t> read_bytes(const std::string& path) {
  std::vector<std::uint8_t> bytes = read_plain(path);
  if (!path.ends_with(".gz")) return bytes;
  std::vector<std::uint8_t> unpacked;
  std::size_t offset = 0;
  do {  // an archive may hold several members one after the other
    offset = unpack_member(path, bytes, offset, unpacked);
  } while (offset < bytes.size());
  return unpacked;
}

}  // namespace fedhpc
