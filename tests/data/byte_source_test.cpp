#include "data/byte_source.hpp"

#include <gtest/gtest.h>

#include "fedhpc/core/error.hpp"

#include "data/packing_support.hpp"
#include "data/unpack.hpp"

namespace fedhpc {
namespace {

using namespace testing_support;

TEST(ReadBytesTest, ReadsPlainAndPackedFiles) {
  const TemporaryFolder folder;
  const Bytes bytes = sample_bytes(300000);
  write_bytes(folder.path("plain"), bytes);
  append_gzip(folder.path("packed.gz"), bytes);
  append_gzip(folder.path("empty.gz"), {});
  write_bytes(folder.path("empty"), {});

  EXPECT_EQ(read_bytes(folder.path("plain")), bytes);
  EXPECT_EQ(read_bytes(folder.path("packed.gz")), bytes);
  EXPECT_EQ(read_bytes(folder.path("empty")), Bytes{});
  EXPECT_EQ(read_bytes(folder.path("empty.gz")), Bytes{});
}

TEST(ReadBytesTest, MembersOfAnArchiveFollowEachOther) {
  const TemporaryFolder folder;
  const Bytes first = sample_bytes(65536);  // fills the first buffer exactly
  const Bytes second = sample_bytes(1000);
  append_gzip(folder.path("two.gz"), first);
  append_gzip(folder.path("two.gz"), second);
  Bytes both = first;
  both.insert(both.end(), second.begin(), second.end());
  EXPECT_EQ(read_bytes(folder.path("two.gz")), both);
}

TEST(ReadBytesTest, ReadsXzFilesOfOneOrMoreStreams) {
  const TemporaryFolder folder;
  const Bytes first = sample_bytes(65536);  // fills the first buffer exactly
  const Bytes second = sample_bytes(1000);
  Bytes packed = xz_bytes(first);
  write_bytes(folder.path("one.xz"), packed);
  EXPECT_EQ(read_bytes(folder.path("one.xz")), first);
  const Bytes more = xz_bytes(second);
  packed.insert(packed.end(), more.begin(), more.end());
  write_bytes(folder.path("two.xz"), packed);
  Bytes both = first;
  both.insert(both.end(), second.begin(), second.end());
  EXPECT_EQ(read_bytes(folder.path("two.xz")), both);
  write_bytes(folder.path("empty.xz"), xz_bytes({}));
  EXPECT_EQ(read_bytes(folder.path("empty.xz")), Bytes{});
}

TEST(UnpackTest, EveryTruncationOfXzIsNoticed) {
  const Bytes whole = xz_bytes(sample_bytes(500));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const std::span<const std::uint8_t> part(whole.data(), length);
    expect_in("'x.xz' is truncated: it ends at offset " + std::to_string(length),
              message_of<DataError>([&] { unpack_xz(part, "x.xz"); }));
  }
}

TEST(UnpackTest, CorruptXzIsNoticedWithItsOffset) {
  const Bytes whole = xz_bytes(sample_bytes(5000));
  Bytes damaged = whole;
  damaged[whole.size() / 2] ^= 1;
  expect_in("'x.xz' is corrupt at offset ",
            message_of<DataError>([&] { unpack_xz(damaged, "x.xz"); }));
  Bytes other = whole;
  other[0] = 'x';
  expect_in("(not xz data); fetch it again",
            message_of<DataError>([&] { unpack_xz(other, "x.xz"); }));
}

TEST(UnpackTest, AZlibStreamEndsWhereItsBytesEnd) {
  const Bytes bytes = sample_bytes(70000);
  Bytes packed = zlib_bytes(bytes);
  EXPECT_EQ(unpack_zlib(packed, 128, "x.mat"), bytes);
  packed.push_back(0);
  expect_in("'x.mat' is corrupt at offset " + std::to_string(127 + packed.size()) + " of " +
                std::to_string(128 + packed.size()) + " (bytes behind",
            message_of<DataError>([&] { unpack_zlib(packed, 128, "x.mat"); }));
  packed.resize(packed.size() - 3);
  expect_in("is truncated: it ends at offset " + std::to_string(128 + packed.size()),
            message_of<DataError>([&] { unpack_zlib(packed, 128, "x.mat"); }));
}

TEST(ReadBytesTest, AMissingFileIsNamed) {
  expect_in("data file 'no/such.gz' cannot be read: No such file",
            message_of<DataError>([] { read_bytes("no/such.gz"); }));
}

TEST(ReadBytesTest, EveryTruncationIsNoticed) {
  const TemporaryFolder folder;
  append_gzip(folder.path("whole.gz"), sample_bytes(500));
  const std::string whole = folder.path("whole.gz");
  const auto size = std::filesystem::file_size(whole);
  for (std::uintmax_t length = 0; length < size; ++length) {
    const std::string part = folder.path("part.gz");
    std::filesystem::copy_file(whole, part, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(part, length);
    const std::string message = message_of<DataError>([&] { read_bytes(part); });
    expect_in("part.gz' is truncated: it ends at offset " + std::to_string(length), message);
  }
}

TEST(ReadBytesTest, CorruptionIsNoticedWithItsOffset) {
  const TemporaryFolder folder;
  const std::string path = folder.path("bad.gz");
  append_gzip(path, sample_bytes(5000));
  Bytes packed(std::filesystem::file_size(path));
  std::ifstream(path, std::ios::binary)
      .read(reinterpret_cast<char*>(packed.data()), static_cast<std::streamsize>(packed.size()));

  Bytes wrong_crc = packed;
  wrong_crc[packed.size() - 8] ^= 1;
  write_bytes(path, wrong_crc);
  const std::string of = " of " + std::to_string(packed.size());
  std::string message = message_of<DataError>([&] { read_bytes(path); });
  expect_in("bad.gz' is corrupt at offset ", message);
  expect_in(of + " (incorrect data check)", message);

  Bytes no_gzip = packed;
  no_gzip[0] = 'x';
  write_bytes(path, no_gzip);
  expect_in("(incorrect header check)", message_of<DataError>([&] { read_bytes(path); }));

  Bytes trailing = packed;
  trailing.push_back('x');
  trailing.push_back('y');
  write_bytes(path, trailing);
  expect_in("is corrupt at offset", message_of<DataError>([&] { read_bytes(path); }));
}

TEST(ByteSourceTest, WhatUnpacksToFarTooMuchIsRefused) {
  const TemporaryFolder folder;
  const Bytes zeros(std::size_t{65} << 20);
  append_gzip(folder.path("bomb.gz"), zeros);
  write_bytes(folder.path("bomb.xz"), xz_bytes(zeros));
  for (const char* name : {"bomb.gz", "bomb.xz"}) {
    const std::string message = message_of<DataError>([&] { read_bytes(folder.path(name)); });
    expect_in(name, message);
    expect_in("bytes unpacks to more than 67108864, far more than data do", message);
  }
}

}  // namespace
}  // namespace fedhpc
