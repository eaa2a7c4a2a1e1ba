#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "fedhpc/data/partition.hpp"

#include "data/data_support.hpp"
#include "data/partition_support.hpp"

namespace fedhpc {
namespace {

using namespace testing_support;

/// As many samples of each label as MNIST has.
TableDataset mnist_labels() {
  const Ids counts = {6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958};
  Ids labels;
  for (std::size_t label = 0; label < counts.size(); ++label) {
    labels.insert(labels.end(), static_cast<std::size_t>(counts[label]),
                  static_cast<std::int64_t>(label));
  }
  return {labels, 60000, 10};
}

TEST(PfedmeTest, GivesThePublishedSizes) {
  const TableDataset data = mnist_labels();
  DataOptions options = options_for("pfedme", 20);
  for (const auto& [labels, sizes] : published_pfedme_sizes()) {
    options.labels_per_client = labels;
    const Partition partition = make_partition(options, data);
    EXPECT_EQ(train_sizes(partition), sizes) << labels << " labels";
    const std::size_t total = labels == 2 ? 6903 + 7877 : 6903 + 7877 + 6990 + 7141 + 6824;
    EXPECT_EQ(partition.train.samples.size() + partition.test.samples.size(), total);
  }
}

TEST(PfedmeTest, SizesFollowTheirOwnSeedAndSamplesTheDataSeed) {
  const TableDataset data = mnist_labels();
  DataOptions options = options_for("pfedme", 20);
  const Partition first = make_partition(options, data);
  options.seed += 1;
  const Partition other = make_partition(options, data);
  EXPECT_EQ(train_sizes(other), train_sizes(first));
  EXPECT_NE(other.train.samples, first.train.samples);
  options.pfedme_seed = 2;
  EXPECT_NE(train_sizes(make_partition(options, data)), train_sizes(first));
}

TEST(PfedmeTest, ClientsHoldConsecutiveLabelsAndNoSampleTwice) {
  const TableDataset data = balanced(6, 400);
  DataOptions options = options_for("pfedme", 12);
  options.labels_per_client = 3;
  const Partition partition = make_partition(options, data);
  Ids all;
  for (std::int64_t u = 0; u < 12; ++u) {
    const Labels allowed = {u % 6, (u + 1) % 6, (u + 2) % 6};
    const Labels held = labels_of(data, partition, u);
    EXPECT_TRUE(std::includes(allowed.begin(), allowed.end(), held.begin(), held.end()));
    const Ids mine = owned(partition, u);
    all.insert(all.end(), mine.begin(), mine.end());
    EXPECT_EQ(partition.train.count(u), static_cast<std::int64_t>(mine.size()) * 3 / 4)
        << "rounded down";
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
  EXPECT_LE(all.size(), 3U * 400U);
  EXPECT_GT(owned(partition, 0).size(), 5 * owned(partition, 11).size()) << "very unequal";
}

TEST(PfedmeTest, ALabelThatRunsOutGivesWhatIsLeft) {
  // Class 0 rules the sizes, and label 1 has one sample only.
  Ids labels(200, 0);
  labels.push_back(1);
  const TableDataset data(labels, 201, 2);
  DataOptions options = options_for("pfedme", 4);
  options.labels_per_client = 1;
  const Partition partition = make_partition(options, data);
  EXPECT_EQ(owned(partition, 1), Ids{200});
  EXPECT_TRUE(owned(partition, 3).empty());
  EXPECT_GT(owned(partition, 0).size(), 30U);
}

TEST(PfedmeTest, MoreLabelsThanThereAreIsRefused) {
  const TableDataset data = balanced(3, 10);
  DataOptions options = options_for("pfedme", 3);
  options.labels_per_client = 4;
  expect_in("data.labels_per_client = 4, but glyphs has 3 labels",
            message_of<ConfigError>([&] { make_partition(options, data); }));
}

}  // namespace
}  // namespace fedhpc
