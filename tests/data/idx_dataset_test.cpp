#include <gtest/gtest.h>

#include "fedhpc/data/dataset.hpp"

#include "data/data_support.hpp"

namespace fedhpc {
namespace {

using namespace testing_support;

void write_small_set(const std::string& folder) {
  write_bytes(folder + "/train-images-idx3-ubyte", idx_bytes({3, 1, 2}, {10, 11, 20, 21, 30, 31}));
  write_bytes(folder + "/train-labels-idx1-ubyte", idx_bytes({3}, {3, 1, 4}));
  write_bytes(folder + "/t10k-images-idx3-ubyte", idx_bytes({2, 1, 2}, {40, 41, 50, 51}));
  write_bytes(folder + "/t10k-labels-idx1-ubyte", idx_bytes({2}, {1, 5}));
}

DataOptions options_for(const std::string& name, const std::string& dir) {
  DataOptions options;
  options.name = name;
  options.dir = dir;
  return options;
}

TEST(IdxDatasetTest, TrainingSamplesComeBeforeTestSamples) {
  const TemporaryFolder folder;
  write_small_set(folder.path("mnist"));
  const auto data = open_dataset(options_for("mnist", folder.path()));

  EXPECT_EQ(data->shape(), (std::vector<std::int64_t>{1, 1, 2}));
  EXPECT_EQ(data->features(), 2);
  EXPECT_EQ(data->classes(), 10);
  EXPECT_EQ(data->num_train(), 3);
  EXPECT_EQ(data->num_test(), 2);
  EXPECT_EQ(data->labels(), (std::vector<std::int64_t>{3, 1, 4, 1, 5}));
  EXPECT_TRUE(data->natural_clients().empty());

  const std::vector<std::int64_t> ids = {4, 0, 0, 2};
  const Samples samples = data->read(ids);
  ASSERT_EQ(samples.features.scalar_type(), at::kByte);
  const auto* pixels = samples.features.data_ptr<std::uint8_t>();
  EXPECT_EQ(std::vector<int>(pixels, pixels + 8),
            (std::vector<int>{50, 51, 10, 11, 10, 11, 30, 31}));
  const auto* labels = samples.labels.data_ptr<std::int64_t>();
  EXPECT_EQ(std::vector<std::int64_t>(labels, labels + 4), (std::vector<std::int64_t>{5, 3, 3, 4}));
  const std::vector<std::int64_t> outside = {5};
  EXPECT_THROW(data->read(outside), std::logic_error);
}

TEST(IdxDatasetTest, FilesMayLieInTheFolderItselfAndTheVariableNamesIt) {
  const TemporaryFolder folder;
  write_small_set(folder.path());
  EXPECT_EQ(open_dataset(options_for("fmnist", folder.path()))->num_train(), 3);
  const Variable variable("FEDHPC_DATA", folder.path());
  EXPECT_EQ(open_dataset(options_for("mnist", ""))->num_train(), 3);
}

TEST(IdxDatasetTest, WithoutAFolderTheErrorSaysWhatToSet) {
  const Variable variable("FEDHPC_DATA", "");
  const std::string message =
      message_of<ConfigError>([] { open_dataset(options_for("mnist", "")); });
  expect_in("data.dir", message);
  expect_in("FEDHPC_DATA", message);
}

TEST(IdxDatasetTest, AMissingFileNamesThePathsTriedAndTheRemedy) {
  const TemporaryFolder folder;
  write_small_set(folder.path("fashion-mnist"));
  std::filesystem::remove(folder.path("fashion-mnist/t10k-labels-idx1-ubyte"));
  const std::string message =
      message_of<DataError>([&] { open_dataset(options_for("fmnist", folder.path())); });
  expect_in(folder.path("fashion-mnist/t10k-labels-idx1-ubyte") + ", ", message);
  expect_in(folder.path("t10k-labels-idx1-ubyte.gz"), message);
  expect_in("tools/fetch_data.py fmnist", message);
}

TEST(IdxDatasetTest, WhatCannotBeLookedAtIsPassedOverAndNamed) {
  const TemporaryFolder folder;
  write_small_set(folder.path());
  std::filesystem::create_symlink("fashion-mnist", folder.path("fashion-mnist"));  // to itself
  EXPECT_EQ(open_dataset(options_for("fmnist", folder.path()))->num_train(), 3);
  std::filesystem::remove(folder.path("t10k-labels-idx1-ubyte"));
  expect_in("': Too many levels of symbolic links); get it with 'tools/fetch_data.py fmnist'",
            message_of<DataError>([&] { open_dataset(options_for("fmnist", folder.path())); }));
}

TEST(IdxDatasetTest, TestImagesHaveTheSizeOfTrainingImages) {
  const TemporaryFolder folder;
  write_small_set(folder.path("mnist"));
  write_bytes(folder.path("mnist/t10k-images-idx3-ubyte"), idx_bytes({2, 2, 1}, {40, 41, 50, 51}));
  expect_in("t10k-images-idx3-ubyte', offset 8: found images of 2 x 1, expected 1 x 2",
            message_of<DataError>([&] { open_dataset(options_for("mnist", folder.path())); }));
}

}  // namespace
}  // namespace fedhpc
