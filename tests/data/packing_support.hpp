#pragma once

#include <lzma.h>
#include <zlib.h>

#include "data/data_support.hpp"

namespace fedhpc::testing_support {

/// `bytes` as an xz file.
inline Bytes xz_bytes(const Bytes& bytes) {
  Bytes packed(lzma_stream_buffer_bound(bytes.size()));
  std::size_t size = 0;
  EXPECT_EQ(lzma_easy_buffer_encode(1, LZMA_CHECK_CRC64, nullptr, bytes.data(), bytes.size(),
                                    packed.data(), &size, packed.size()),
            LZMA_OK);
  packed.resize(size);
  return packed;
}

/// `bytes` as a zlib stream.
inline Bytes zlib_bytes(const Bytes& bytes) {
  uLongf size = compressBound(bytes.size());
  Bytes packed(size);
  EXPECT_EQ(compress(packed.data(), &size, bytes.data(), bytes.size()), Z_OK);
  packed.resize(size);
  return packed;
}

/// Appends one gzip member to `path`.
inline void append_gzip(const std::string& path, const Bytes& bytes) {
  gzFile file = gzopen(path.c_str(), "ab");
  ASSERT_NE(file, nullptr);
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  ASSERT_EQ(gzclose(file), Z_OK);
}

/// Bytes that do not pack to nothing.
inline Bytes sample_bytes(std::size_t count) {
  Bytes bytes(count);
  std::uint32_t state = 1;
  for (std::uint8_t& byte : bytes) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::uint8_t>(state >> 28);
  }
  return bytes;
}

}  // namespace fedhpc::testing_support
