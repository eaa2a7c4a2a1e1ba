#include "data/mat.hpp"

#include <gtest/gtest.h>

#include "fedhpc/data/dataset.hpp"

#include "data/packing_support.hpp"

namespace fedhpc {
namespace {

using namespace testing_support;

void append(Bytes& bytes, const Bytes& more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

Bytes word(std::size_t number) {
  Bytes bytes;
  for (const int shift : {0, 8, 16, 24})
    bytes.push_back(static_cast<std::uint8_t>(number >> shift));
  return bytes;
}

/// An element; up to four bytes of data go into the tag when `small`.
Bytes element(std::size_t type, const Bytes& data, bool small = false) {
  Bytes bytes = small ? word(data.size() << 16 | type) : word(type);
  if (!small) append(bytes, word(data.size()));
  append(bytes, data);
  const std::size_t padded = small ? 8 : (bytes.size() + 7) / 8 * 8;
  bytes.resize(padded);
  return bytes;
}

/// An array of unsigned bytes as MATLAB writes it.
Bytes matrix(const std::string& name, const std::vector<std::size_t>& shape, const Bytes& data) {
  Bytes content = element(6, {9, 0, 0, 0, 0, 0, 0, 0});
  Bytes sizes;
  for (const std::size_t size : shape) append(sizes, word(size));
  append(content, element(5, sizes));
  append(content, element(1, Bytes(name.begin(), name.end()), name.size() <= 4));
  append(content, element(2, data, data.size() <= 4));
  return element(14, content);
}

Bytes packed(const Bytes& array) {
  const Bytes data = zlib_bytes(array);
  Bytes bytes = word(15);
  append(bytes, word(data.size()));
  append(bytes, data);
  return bytes;
}

Bytes header() {
  Bytes bytes(128, ' ');
  bytes[124] = 0;
  bytes[125] = 1;
  bytes[126] = 'I';
  bytes[127] = 'M';
  return bytes;
}

Bytes file_of(const std::vector<Bytes>& elements) {
  Bytes bytes = header();
  for (const Bytes& more : elements) append(bytes, more);
  return bytes;
}

TEST(MatTest, PlainAndPackedArraysInAnyOrder) {
  const Bytes values = {1, 2, 3, 4, 5, 6};
  const Bytes bytes = file_of({packed(matrix("longer", {1, 1}, {7})), matrix("y", {2, 1}, {8, 9}),
                               packed(matrix("X", {2, 3}, values))});
  const std::vector<MatArray> arrays = parse_mat(bytes, "t.mat", {"X", "y"});
  EXPECT_EQ(arrays[0].name, "X");
  EXPECT_EQ(arrays[0].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(Bytes(arrays[0].data(), arrays[0].data() + 6), values);
  EXPECT_EQ(Bytes(arrays[1].data(), arrays[1].data() + 2), (Bytes{8, 9}));
  EXPECT_EQ(parse_mat(bytes, "t.mat", {"longer"})[0].size(), 1);
}

TEST(MatTest, ABadFileIsNamedWithItsOffset) {
  const auto message = [](const Bytes& bytes) {
    return message_of<DataError>([&] { parse_mat(bytes, "t.mat", {"X"}); });
  };
  const Bytes good = file_of({matrix("X", {2, 1}, {8, 9})});
  const std::string file = "MATLAB file 't.mat', offset ";
  expect_in(file + "5: found the end of the file, expected a header of 128 bytes",
            message(Bytes(5, 0)));
  Bytes bytes = good;
  bytes[126] = 'M';
  expect_in(file + "126: found the bytes 77 77, expected IM", message(bytes));
  bytes = good;
  bytes[125] = 2;
  expect_in(file + "124: found version 2, expected 1 (saved with -v6 or -v7, not -v7.3)",
            message(bytes));
  expect_in("found the end of the file, expected an array called 'X'", message(header()));
  expect_in("found 1 elements of X, expected 2 as its shape says",
            message(file_of({matrix("X", {2, 1}, {8})})));
  expect_in("offset 0 of the array packed at offset 128: found the end of the data",
            message(file_of({packed({})})));
  bytes = file_of({packed(matrix("X", {2, 1}, {8, 9}))});
  bytes[140] ^= 0xFF;
  expect_in("data file 't.mat' is corrupt at offset 1", message(bytes));
  bytes = good;
  bytes[128 + 8 + 16 + 16 + 8] = 9;
  expect_in("found an element of type 9, expected type 2 (unsigned bytes)", message(bytes));
}

TEST(MatTest, EveryTruncationIsNoticed) {
  for (const Bytes& whole : {file_of({matrix("X", {6, 1}, {1, 2, 3, 4, 5, 6})}),
                             file_of({packed(matrix("X", {6, 1}, {1, 2, 3, 4, 5, 6}))})}) {
    for (std::size_t length = 0; length < whole.size(); ++length) {
      const std::span<const std::uint8_t> part(whole.data(), length);
      EXPECT_THROW(parse_mat(part, "t.mat", {"X"}), DataError) << length;
    }
  }
}

/// SVHN's X: pixel (row, column, channel) of image s is (s + 100 channel + row + 3 column) mod 256.
Bytes svhn_file(const Bytes& digits) {
  Bytes pixels;
  for (std::size_t s = 0; s < digits.size(); ++s) {
    for (std::size_t channel = 0; channel < 3; ++channel) {
      for (std::size_t column = 0; column < 32; ++column) {
        for (std::size_t row = 0; row < 32; ++row) {
          pixels.push_back(static_cast<std::uint8_t>(s + 100 * channel + row + 3 * column));
        }
      }
    }
  }
  return file_of({packed(matrix("X", {32, 32, 3, digits.size()}, pixels)),
                  packed(matrix("y", {digits.size(), 1}, digits))});
}

TEST(SvhnTest, TenIsTheDigitZeroAndImagesAreTurnedToRows) {
  const TemporaryFolder folder;
  write_bytes(folder.path("svhn/train_32x32.mat"), svhn_file({1, 10, 9}));
  write_bytes(folder.path("svhn/test_32x32.mat"), svhn_file({10}));
  DataOptions options;
  options.name = "svhn";
  options.dir = folder.path();
  const auto data = open_dataset(options);
  EXPECT_EQ(data->shape(), (std::vector<std::int64_t>{3, 32, 32}));
  EXPECT_EQ(data->num_train(), 3);
  EXPECT_EQ(data->num_test(), 1);
  EXPECT_EQ(data->labels(), (std::vector<std::int64_t>{1, 0, 9, 0}));
  const std::vector<std::int64_t> ids = {2};
  const Samples samples = data->read(ids);
  const auto* pixels = samples.features.data_ptr<std::uint8_t>();
  for (std::size_t i = 0; i < 3072; ++i) {
    ASSERT_EQ(pixels[i],
              static_cast<std::uint8_t>(2 + 100 * (i / 1024) + i / 32 % 32 + 3 * (i % 32)));
  }

  const auto message = [&](const Bytes& bytes) {
    write_bytes(folder.path("svhn/test_32x32.mat"), bytes);
    return message_of<DataError>([&] { open_dataset(options); });
  };
  expect_in("label 11 at entry 1 of y, expected 1 to 10", message(svhn_file({10, 11})));
  expect_in("label 0 at entry 0 of y", message(svhn_file({0})));
  expect_in("X of another shape, expected 32 x 32 x 3 x samples",
            message(file_of({matrix("X", {2, 2}, {1, 2, 3, 4}), matrix("y", {1, 1}, {1})})));
  expect_in("2 labels in y, expected 1",
            message(file_of({matrix("X", {32, 32, 3}, Bytes(3072)), matrix("y", {2, 1}, {1, 1})})));
}

}  // namespace
}  // namespace fedhpc
