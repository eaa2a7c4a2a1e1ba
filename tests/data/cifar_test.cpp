#include "data/cifar.hpp"

#include <gtest/gtest.h>

#include "fedhpc/data/dataset.hpp"

#include "data/packing_support.hpp"

namespace fedhpc {
namespace {

using namespace testing_support;

/// Pixel i of an image that is known by `seed`.
std::uint8_t pixel(int seed, std::size_t i) {
  return static_cast<std::uint8_t>((static_cast<std::size_t>(seed) * 31 + i) % 251);
}

/// Records with these label bytes each; image s has seed + s.
Bytes records(const std::vector<Bytes>& labels, int seed) {
  Bytes bytes;
  for (const Bytes& label : labels) {
    bytes.insert(bytes.end(), label.begin(), label.end());
    for (std::size_t i = 0; i < kCifarPixels; ++i) bytes.push_back(pixel(seed, i));
    ++seed;
  }
  return bytes;
}

DataOptions options_for(const std::string& name, const std::string& directory) {
  DataOptions options;
  options.name = name;
  options.dir = directory;
  return options;
}

void expect_image(const Samples& samples, std::int64_t row, int seed) {
  const auto* pixels = samples.features.data_ptr<std::uint8_t>() + row * kCifarPixels;
  for (std::size_t i = 0; i < kCifarPixels; ++i) ASSERT_EQ(pixels[i], pixel(seed, i)) << i;
}

/// CIFAR-10 with two records in each training file and one for testing, packed in three ways.
void write_cifar10(const std::string& directory) {
  for (std::uint8_t batch = 0; batch < 5; ++batch) {
    const std::string path = directory + "/data_batch_" + std::to_string(batch + 1) + ".bin";
    const Bytes bytes = records({{batch}, {9}}, 2 * batch);
    if (batch == 1) {
      append_gzip(path + ".gz", bytes);
    } else {
      write_bytes(batch == 2 ? path + ".xz" : path, batch == 2 ? xz_bytes(bytes) : bytes);
    }
  }
  write_bytes(directory + "/test_batch.bin", records({{7}}, 100));
}

TEST(CifarTest, Cifar10IsReadInOrderOfItsFiles) {
  const TemporaryFolder folder;
  write_cifar10(folder.path("cifar-10-batches-bin"));
  const auto data = open_dataset(options_for("cifar10", folder.path()));
  EXPECT_EQ(data->shape(), (std::vector<std::int64_t>{3, 32, 32}));
  EXPECT_EQ(data->classes(), 10);
  EXPECT_EQ(data->num_train(), 10);
  EXPECT_EQ(data->num_test(), 1);
  EXPECT_EQ(data->labels(), (std::vector<std::int64_t>{0, 9, 1, 9, 2, 9, 3, 9, 4, 9, 7}));
  const std::vector<std::int64_t> ids = {10, 5, 5, 0};
  const Samples samples = data->read(ids);
  EXPECT_EQ(samples.features.scalar_type(), at::kByte);
  expect_image(samples, 0, 100);
  expect_image(samples, 1, 5);
  expect_image(samples, 2, 5);
  expect_image(samples, 3, 0);
  EXPECT_EQ(samples.labels.data_ptr<std::int64_t>()[0], 7);
  const std::vector<std::int64_t> outside = {11};
  EXPECT_THROW(data->read(outside), std::logic_error);
}

TEST(CifarTest, Cifar100TakesTheFineLabel) {
  const TemporaryFolder folder;
  write_bytes(folder.path("train.bin"), records({{19, 99}, {0, 3}}, 0));
  write_bytes(folder.path("test.bin"), records({{4, 20}}, 50));
  const auto data = open_dataset(options_for("cifar100", folder.path()));
  EXPECT_EQ(data->classes(), 100);
  EXPECT_EQ(data->labels(), (std::vector<std::int64_t>{99, 3, 20}));
  const std::vector<std::int64_t> ids = {1, 2};
  const Samples samples = data->read(ids);
  expect_image(samples, 0, 1);
  expect_image(samples, 1, 50);
}

TEST(CifarTest, ABadFileIsNamedWithItsOffset) {
  const CifarLabels fine = {20, 100};
  Bytes bytes = records({{1, 2}, {19, 99}}, 0);
  const auto message = [&] {
    return message_of<DataError>([&] { parse_cifar(bytes, "t.bin", fine); });
  };
  bytes[3074] = 20;
  expect_in("CIFAR file 't.bin', offset 3074: found label 20, expected 0 to 19", message());
  bytes[3074] = 19;
  bytes[3075] = 100;
  expect_in("CIFAR file 't.bin', offset 3075: found label 100, expected 0 to 99", message());
  bytes.pop_back();
  expect_in("offset 6147: found the end of the file, expected records of 3074 bytes", message());
  bytes.clear();
  expect_in("offset 0: found the end of the file", message());
}

TEST(CifarTest, AFileThatIsMissingOrShorterThanTheOthersIsNamed) {
  const TemporaryFolder folder;
  write_cifar10(folder.path());
  const auto message = [&] {
    return message_of<DataError>([&] { open_dataset(options_for("cifar10", folder.path())); });
  };
  write_bytes(folder.path("data_batch_4.bin"), records({{1}}, 0));
  expect_in("data_batch_4.bin', offset 3073: found the end of the file after 1 records, expected 2",
            message());
  std::filesystem::remove(folder.path("data_batch_4.bin"));
  expect_in("data_batch_4.bin.xz", message());
  expect_in("tools/fetch_data.py cifar10", message());
}

}  // namespace
}  // namespace fedhpc
