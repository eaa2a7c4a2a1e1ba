#include "data/idx.hpp"

#include <gtest/gtest.h>

#include "fedhpc/core/error.hpp"

#include "data/data_support.hpp"

namespace fedhpc {
namespace {

using namespace testing_support;

TEST(ReadIdxTest, ReadsShapeAndData) {
  const TemporaryFolder folder;
  write_bytes(folder.path("images"), idx_bytes({2, 1, 3}, {1, 2, 3, 4, 5, 255}));
  const IdxArray array = read_idx(folder.path("images"), 3);
  EXPECT_EQ(array.shape, (std::vector<std::int64_t>{2, 1, 3}));
  EXPECT_EQ(Bytes(array.data(), array.data() + 6), (Bytes{1, 2, 3, 4, 5, 255}));
}

TEST(ReadIdxTest, ReadsLargeDimensionsBigEndian) {
  const TemporaryFolder folder;
  write_bytes(folder.path("labels"), idx_bytes({0x010203}, Bytes(0x010203, 7)));
  EXPECT_EQ(read_idx(folder.path("labels"), 1).shape.front(), 0x010203);
}

TEST(ReadIdxTest, ErrorsNamePlaceFoundAndExpected) {
  struct Case {
    Bytes bytes;
    std::size_t dimensions;
    std::string message;
  };
  Bytes wrong_magic = idx_bytes({2}, {0, 1});
  wrong_magic[0] = 31;
  Bytes cut_header = idx_bytes({2, 2, 2}, {});
  cut_header.resize(10);
  const std::vector<Case> cases = {
      {{}, 1, "offset 0: found the end of the file, expected an idx header of 4 bytes"},
      {{0, 0, 8}, 1, "offset 3: found the end of the file, expected an idx header of 4 bytes"},
      {wrong_magic, 1, "offset 0: found the bytes 31 0, expected the two zero bytes"},
      {idx_bytes({2}, {0, 1}, 0x0D), 1,
       "offset 2: found element type 13, expected 8 (unsigned bytes)"},
      {idx_bytes({2}, {0, 1}), 3, "offset 3: found 1 dimensions, expected 3"},
      {cut_header, 3, "offset 10: found the end of the file, expected a header of 16 bytes"},
      {idx_bytes({2, 2, 2}, {1, 2, 3}), 3,
       "offset 19: found the end of the file after 3 bytes of data, expected 8 bytes of data "
       "(2 x 2 x 2) as the header says"},
      {idx_bytes({2}, {0, 1, 2, 3}), 1,
       "offset 10: found 2 trailing bytes, expected 2 bytes of data (2) as the header says"},
      {idx_bytes({0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, {1}), 3,
       "offset 17: found the end of the file after 1 bytes of data, expected 9223372036854775807"},
      {idx_bytes({0, 0xFFFFFFFF, 0xFFFFFFFF}, {}), 3,
       "offset 4: found the shape 0 x 4294967295 x 4294967295, expected a shape whose size fits"},
  };
  const TemporaryFolder folder;
  const std::string path = folder.path("broken");
  for (const Case& broken : cases) {
    write_bytes(path, broken.bytes);
    const std::string message = message_of<DataError>([&] { read_idx(path, broken.dimensions); });
    expect_in("idx file '" + path + "', " + broken.message, message);
  }
}

TEST(CheckLabelsTest, CountsAndRangeAreChecked) {
  const TemporaryFolder folder;
  write_bytes(folder.path("images"), idx_bytes({3, 1, 1}, {1, 2, 3}));
  write_bytes(folder.path("few"), idx_bytes({2}, {0, 1}));
  write_bytes(folder.path("high"), idx_bytes({3}, {0, 10, 1}));
  write_bytes(folder.path("good"), idx_bytes({3}, {0, 9, 1}));
  const IdxArray images = read_idx(folder.path("images"), 3);

  EXPECT_NO_THROW(check_labels(images, read_idx(folder.path("good"), 1), 10));
  expect_in(
      "offset 4: found 2 labels, expected 3, one for each image of '" + folder.path("images"),
      message_of<DataError>([&] { check_labels(images, read_idx(folder.path("few"), 1), 10); }));
  expect_in(
      "high', offset 9: found label 10, expected a label from 0 to 9",
      message_of<DataError>([&] { check_labels(images, read_idx(folder.path("high"), 1), 10); }));
}

}  // namespace
}  // namespace fedhpc
