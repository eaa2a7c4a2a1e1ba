#include "data/unpack.hpp"

#include <algorithm>

#include <lzma.h>
#define ZLIB_CONST  // next_in points to const
#include <zlib.h>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

constexpr int kZlibWindow = 15;                // the largest
constexpr int kGzipWindow = kZlibWindow + 16;  // expect a gzip header and check its CRC
constexpr std::size_t kLargestChunk = std::size_t{1} << 30;  // zlib counts in 32 bits
constexpr std::size_t kSmallestBuffer = std::size_t{1} << 16;
constexpr std::uint64_t kXzMemory = std::uint64_t{1} << 29;  // [bytes]; xz -9 takes 65 MiB

[[noreturn]] void fail_corrupt(const std::string& path, std::size_t offset, std::size_t size,
                               const std::string& reason) {
  throw DataError(concat("data file '", path, "' is corrupt at offset ", offset, " of ", size, " (",
                         reason, "); fetch it again"));
}

[[noreturn]] void fail_truncated(const std::string& path, std::size_t offset,
                                 const std::string& format) {
  throw DataError(concat("data file '", path, "' is truncated: it ends at offset ", offset,
                         " in the middle of its ", format, " data; fetch it again"));
}

/// What an archive may unpack to. Data shrink to a tenth, hardly ever below a hundredth.
std::size_t largest_size(std::size_t packed) {
  constexpr std::size_t kAlways = std::size_t{64} << 20;
  constexpr std::size_t kRatio = 100;
  return std::max(kAlways, kRatio * packed);
}

/// Makes room for more output behind the `used` bytes.
void grow(std::vector<std::uint8_t>& unpacked, std::size_t used, std::size_t packed,
          const std::string& path) {
  if (used < unpacked.size()) return;
  const std::size_t limit = largest_size(packed);
  if (used > limit) {
    throw DataError(concat("data file '", path, "' of ", packed, " bytes unpacks to more than ",
                           limit, ", far more than data do; unpack it yourself if it is right"));
  }
  unpacked.resize(std::clamp(used * 2, kSmallestBuffer, limit + 1));
}

/// Cuts the output to what is used and gives the rest of its memory back.
void finish(std::vector<std::uint8_t>& unpacked, std::size_t used) {
  unpacked.resize(used);
  unpacked.shrink_to_fit();
}

/// Owns zlib's state of one stream.
class Inflater {
 public:
  explicit Inflater(int window) {
    if (inflateInit2(&stream_, window) != Z_OK) throw Error("zlib cannot be initialised");
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  z_stream& stream() { return stream_; }

 private:
  z_stream stream_{};
};

/// Owns liblzma's state of a file.
class XzDecoder {
 public:
  XzDecoder() {
    if (lzma_stream_decoder(&stream_, kXzMemory, LZMA_CONCATENATED) != LZMA_OK) {
      throw Error("liblzma cannot be initialised");
    }
  }
  ~XzDecoder() { lzma_end(&stream_); }
  XzDecoder(const XzDecoder&) = delete;
  XzDecoder& operator=(const XzDecoder&) = delete;

  lzma_stream& stream() { return stream_; }

 private:
  lzma_stream stream_ = LZMA_STREAM_INIT;
};

/// The part of a file that is unpacked.
struct Source {
  std::span<const std::uint8_t> packed;
  std::size_t offset;  // of `packed` in the file
  const std::string& path;
  const char* format;
};

/// Unpacks one stream of zlib's formats that starts at `begin`, writes it behind the `out` bytes
/// that `unpacked` holds already, moves `out` on and returns the position behind the stream.
std::size_t inflate_stream(const Source& source, int window, std::size_t begin,
                           std::vector<std::uint8_t>& unpacked, std::size_t& out) {
  Inflater inflater(window);
  z_stream& stream = inflater.stream();
  std::size_t in = begin;
  while (true) {
    grow(unpacked, out, source.packed.size(), source.path);
    const std::size_t offered = std::min(source.packed.size() - in, kLargestChunk);
    const std::size_t room = std::min(unpacked.size() - out, kLargestChunk);
    stream.next_in = source.packed.data() + in;
    stream.avail_in = static_cast<uInt>(offered);
    stream.next_out = unpacked.data() + out;
    stream.avail_out = static_cast<uInt>(room);
    const int status = inflate(&stream, Z_NO_FLUSH);
    in += offered - stream.avail_in;
    out += room - stream.avail_out;
    if (status == Z_STREAM_END) return in;
    if (status != Z_OK && status != Z_BUF_ERROR) {
      fail_corrupt(source.path, source.offset + in, source.offset + source.packed.size(),
                   stream.msg != nullptr ? stream.msg : concat("not ", source.format, " data"));
    }
    if (in == source.packed.size() && out < unpacked.size()) {
      fail_truncated(source.path, source.offset + in, source.format);
    }
  }
}

std::string xz_reason(lzma_ret status) {
  switch (status) {
    case LZMA_FORMAT_ERROR:
      return "not xz data";
    case LZMA_OPTIONS_ERROR:
      return "an unknown kind of xz data";
    case LZMA_MEMLIMIT_ERROR:
    case LZMA_MEM_ERROR:
      return "its dictionary takes more memory than the 512 MiB allowed";
    default:
      return "incorrect xz data";
  }
}

}  // namespace

std::vector<std::uint8_t> unpack_gzip(std::span<const std::uint8_t> packed,
                                      const std::string& path) {
  const Source source{.packed = packed, .offset = 0, .path = path, .format = "gzip"};
  std::vector<std::uint8_t> unpacked;
  std::size_t out = 0;
  std::size_t in = 0;
  do {  // an archive may hold several members one after the other
    in = inflate_stream(source, kGzipWindow, in, unpacked, out);
  } while (in < packed.size());
  finish(unpacked, out);
  return unpacked;
}

std::vector<std::uint8_t> unpack_zlib(std::span<const std::uint8_t> packed, std::size_t offset,
                                      const std::string& path) {
  const Source source{.packed = packed, .offset = offset, .path = path, .format = "zlib"};
  std::vector<std::uint8_t> unpacked;
  std::size_t out = 0;
  const std::size_t end = inflate_stream(source, kZlibWindow, 0, unpacked, out);
  if (end != packed.size()) {
    fail_corrupt(path, offset + end, offset + packed.size(), "bytes behind the compressed data");
  }
  finish(unpacked, out);
  return unpacked;
}

std::vector<std::uint8_t> unpack_xz(std::span<const std::uint8_t> packed, const std::string& path) {
  XzDecoder decoder;
  lzma_stream& stream = decoder.stream();
  stream.next_in = packed.data();
  stream.avail_in = packed.size();
  std::vector<std::uint8_t> unpacked;
  std::size_t out = 0;
  while (true) {
    grow(unpacked, out, packed.size(), path);
    stream.next_out = unpacked.data() + out;
    stream.avail_out = unpacked.size() - out;
    const lzma_ret status = lzma_code(&stream, LZMA_FINISH);
    out = unpacked.size() - stream.avail_out;
    const std::size_t in = packed.size() - stream.avail_in;
    if (status == LZMA_STREAM_END) break;
    if (status == LZMA_BUF_ERROR) fail_truncated(path, in, "xz");
    if (status != LZMA_OK) fail_corrupt(path, in, packed.size(), xz_reason(status));
  }
  finish(unpacked, out);
  return unpacked;
}

}  // namespace fedhpc
