#include <set>

#include <gtest/gtest.h>

#include "fedhpc/data/partition.hpp"

#include "data/data_support.hpp"
#include "data/partition_support.hpp"

namespace fedhpc {
namespace {

using namespace testing_support;

TEST(LabelsTest, LeastUsedGivesTheTenRepeatingSets) {
  const TableDataset data = balanced(10, 60);
  DataOptions options = options_for("labels", 20);
  options.labels_rule = LabelsRule::LeastUsed;
  options.labels_per_client = 3;
  const Partition partition = make_partition(options, data);
  const std::vector<Labels> sets = {{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {0, 1, 9}, {2, 3, 4},
                                    {5, 6, 7}, {0, 8, 9}, {1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
  for (std::int64_t u = 0; u < 20; ++u) EXPECT_EQ(labels_of(data, partition, u), sets[u % 10]);
  expect_partition_of(partition, 600);
  for (std::int64_t u = 0; u < 20; ++u) EXPECT_EQ(owned(partition, u).size(), 30U);
}

TEST(LabelsTest, ConsecutiveLabelsWrapAround) {
  const TableDataset data = balanced(10, 50);
  DataOptions options = options_for("labels", 20);
  options.labels_rule = LabelsRule::Consecutive;
  options.labels_per_client = 5;
  const Partition partition = make_partition(options, data);
  for (std::int64_t u = 0; u < 20; ++u) {
    Labels expected;
    for (std::int64_t j = 0; j < 5; ++j) expected.insert((u + j) % 10);
    EXPECT_EQ(labels_of(data, partition, u), expected);
  }
  expect_partition_of(partition, 500);
}

TEST(LabelsTest, RandomTakesTheOwnLabelAndOthersWithoutReplacement) {
  const TableDataset data = balanced(10, 200);
  DataOptions options = options_for("labels", 40);
  options.labels_per_client = 3;
  const Partition partition = make_partition(options, data);
  std::set<Labels> sets;
  for (std::int64_t u = 0; u < 40; ++u) {
    const Labels held = labels_of(data, partition, u);
    EXPECT_EQ(held.size(), 3U);
    EXPECT_TRUE(held.contains(u % 10));
    sets.insert(held);
  }
  EXPECT_GT(sets.size(), 20U);
  expect_partition_of(partition, 2000);  // u mod 10 covers every label
}

TEST(LabelsTest, HoldersShareALabelEqually) {
  const TableDataset data = balanced(4, 11);
  DataOptions options = options_for("labels", 12);
  options.labels_rule = LabelsRule::Consecutive;
  options.labels_per_client = 1;
  const Partition partition = make_partition(options, data);
  for (std::int64_t u = 0; u < 12; ++u) {  // 11 samples among 3 holders: 4, 4, 3
    EXPECT_EQ(owned(partition, u).size(), u / 4 < 2 ? 4U : 3U);
  }
}

TEST(LabelsTest, CountsPerClassAreExactAndDisjoint) {
  const TableDataset data = balanced(10, 60);
  const Ids labels = data.labels();
  DataOptions options = options_for("labels", 20);
  options.labels_rule = LabelsRule::Consecutive;
  options.labels_per_client = 5;
  options.train_per_class = 2;
  options.test_per_class = 4;
  const Partition partition = make_partition(options, data);
  std::set<std::int64_t> seen;
  for (std::int64_t u = 0; u < 20; ++u) {
    std::vector<std::int64_t> train(10, 0), test(10, 0);
    for (const std::int64_t id : partition.train.of(u)) ++train[labels[id]];
    for (const std::int64_t id : partition.test.of(u)) ++test[labels[id]];
    for (std::int64_t j = 0; j < 10; ++j) {
      EXPECT_EQ(train[(u + j) % 10], j < 5 ? 2 : 0);
      EXPECT_EQ(test[(u + j) % 10], j < 5 ? 4 : 0);
    }
    for (const std::int64_t id : owned(partition, u)) EXPECT_TRUE(seen.insert(id).second);
  }
  EXPECT_EQ(leaked_samples(partition), 0);

  options.train_per_class = 3;
  const std::string message = message_of<ConfigError>([&] { make_partition(options, data); });
  expect_in("label 0 is held by 10 clients, which need 70 samples, but", message);
  expect_in("has 60;", message);
}

}  // namespace
}  // namespace fedhpc
