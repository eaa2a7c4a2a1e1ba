// Reads the real files where they are: $FEDHPC_DATA, else ../shared/data.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <numeric>

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "fedhpc/data/partition.hpp"
#include "fedhpc/data/shard.hpp"

#include "data/partition_support.hpp"

namespace fedhpc {
namespace {

DataOptions real(const std::string& name, const std::string& folder) {
  DataOptions options;
  options.name = name;
  const char* variable = std::getenv("FEDHPC_DATA");
  options.dir = variable != nullptr && *variable != '\0' ? variable : "../shared/data";
  if (!std::filesystem::exists(options.dir + "/" + folder)) options.dir.clear();
  return options;
}

std::vector<std::int64_t> counts_of(const std::vector<std::int64_t>& labels) {
  std::vector<std::int64_t> counts(10, 0);
  for (const std::int64_t label : labels) ++counts.at(static_cast<std::size_t>(label));
  return counts;
}

TEST(RealDataTest, Mnist) {
  const DataOptions options = real("mnist", "mnist");
  if (options.dir.empty()) GTEST_SKIP() << "no folder mnist in $FEDHPC_DATA or ../shared/data";
  const auto data = open_dataset(options);
  EXPECT_EQ(data->num_train(), 60000);
  EXPECT_EQ(data->num_test(), 10000);
  EXPECT_EQ(data->shape(), (std::vector<std::int64_t>{1, 28, 28}));
  const std::vector<std::int64_t> labels = data->labels();
  EXPECT_EQ(std::vector<std::int64_t>(labels.begin(), labels.begin() + 5),
            (std::vector<std::int64_t>{5, 0, 4, 1, 9}));
  EXPECT_EQ(std::vector<std::int64_t>(labels.begin() + 60000, labels.begin() + 60005),
            (std::vector<std::int64_t>{7, 2, 1, 0, 4}));
  EXPECT_EQ(counts_of(labels), (std::vector<std::int64_t>{6903, 7877, 6990, 7141, 6824, 6313, 6876,
                                                          7293, 6825, 6958}));
}

TEST(RealDataTest, MnistInThePublishedSizesOfPfedme) {
  DataOptions options = real("mnist", "mnist");
  if (options.dir.empty()) GTEST_SKIP() << "no folder mnist in $FEDHPC_DATA or ../shared/data";
  options.partition = "pfedme";
  const auto data = open_dataset(options);
  for (const auto& [labels, sizes] : testing_support::published_pfedme_sizes()) {
    options.labels_per_client = labels;
    EXPECT_EQ(testing_support::train_sizes(make_partition(options, *data)), sizes);
  }
}

TEST(RealDataTest, FashionMnist) {
  const DataOptions options = real("fmnist", "fashion-mnist");
  if (options.dir.empty())
    GTEST_SKIP() << "no folder fashion-mnist in $FEDHPC_DATA or ../shared/data";
  const auto data = open_dataset(options);
  EXPECT_EQ(data->num_train(), 60000);
  EXPECT_EQ(counts_of(data->labels()), std::vector<std::int64_t>(10, 7000));
  std::vector<std::int64_t> train(60000);
  std::iota(train.begin(), train.end(), 0);
  const Tensor pixels = data->read(train).features;
  double sum = 0;
  double squares = 0;
  const auto* begin = pixels.data_ptr<std::uint8_t>();
  std::for_each(begin, begin + pixels.numel(), [&](std::uint8_t pixel) {
    sum += pixel / 255.0;
    squares += pixel / 255.0 * (pixel / 255.0);
  });
  const double mean = sum / static_cast<double>(pixels.numel());
  EXPECT_NEAR(mean, .2860, 5e-5);
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(pixels.numel()) - mean * mean), .3530, 5e-5);
}

TEST(RealDataTest, Cifar10) {
  const DataOptions options = real("cifar10", "cifar-10-batches-bin");
  if (options.dir.empty())
    GTEST_SKIP() << "no folder cifar-10-batches-bin in $FEDHPC_DATA or ../shared/data";
  const auto data = open_dataset(options);
  EXPECT_EQ(data->num_train(), 50000);
  EXPECT_EQ(data->num_test(), 10000);
  const std::vector<std::int64_t> labels = data->labels();
  EXPECT_EQ(counts_of({labels.begin(), labels.begin() + 50000}),
            std::vector<std::int64_t>(10, 5000));
  EXPECT_EQ(counts_of({labels.begin() + 50000, labels.end()}), std::vector<std::int64_t>(10, 1000));
  EXPECT_EQ(std::vector<std::int64_t>(labels.begin(), labels.begin() + 5),
            (std::vector<std::int64_t>{6, 9, 9, 4, 1}));
  std::vector<std::int64_t> train(50000);
  std::iota(train.begin(), train.end(), 0);
  const Tensor pixels = data->read(train).features;
  const auto* begin = pixels.data_ptr<std::uint8_t>();
  std::array<double, 3> sums{};
  for (std::int64_t i = 0; i < pixels.numel(); ++i) {
    sums[static_cast<std::size_t>(i / 1024 % 3)] += begin[i] / 255.0;
  }
  EXPECT_NEAR(sums[0] / (50000.0 * 1024), .4914, 5e-5);  // the published means of the channels
  EXPECT_NEAR(sums[1] / (50000.0 * 1024), .4822, 5e-5);
  EXPECT_NEAR(sums[2] / (50000.0 * 1024), .4465, 5e-5);
}

TEST(RealDataTest, TheSettingsOfSFedHpFitWithHalvedCounts) {
  DataOptions options = real("mnist", "mnist");
  if (options.dir.empty()) GTEST_SKIP() << "no folder mnist in $FEDHPC_DATA or ../shared/data";
  const auto data = open_dataset(options);
  options.partition = "labels";
  options.labels_rule = LabelsRule::Consecutive;
  options.labels_per_client = 5;
  options.train_per_class = 200;
  options.test_per_class = 800;
  EXPECT_THROW(make_partition(options, *data), ConfigError);
  options.train_per_class = 100;
  options.test_per_class = 400;
  const Partition partition = make_partition(options, *data);
  EXPECT_EQ(partition.train.samples.size(), 20U * 5 * 100);
  EXPECT_EQ(partition.test.samples.size(), 20U * 5 * 400);
  EXPECT_EQ(leaked_samples(partition), 0);
  const Shard shard(*data, partition, {5, 6, 7, 8, 9}, Standardize::Unit, DType::Float32);
  EXPECT_EQ(shard.train_rows(), 5 * 500);
  EXPECT_EQ(shard.label_histogram(7),
            (std::vector<std::int64_t>{500, 500, 0, 0, 0, 0, 0, 500, 500, 500}));
}

}  // namespace
}  // namespace fedhpc
