#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "fedhpc/data/partition.hpp"

#include "data/data_support.hpp"
#include "data/partition_support.hpp"

namespace fedhpc {
namespace {

using namespace testing_support;

/// The samples in order of label, then of id.
Ids sorted_by_label(const Dataset& data) {
  const Ids labels = data.labels();
  Ids ids;
  for (std::int64_t label = 0; label < data.classes(); ++label) {
    for (std::size_t s = 0; s < labels.size(); ++s) {
      if (labels[s] == label) ids.push_back(static_cast<std::int64_t>(s));
    }
  }
  return ids;
}

TEST(ShardsTest, EveryClientGetsWholeShardsOfTheSortedSamples) {
  const TableDataset data = balanced(6, 20);  // 120 samples
  DataOptions options = options_for("shards", 8);
  options.shards_per_client = 3;  // 24 shards of 5
  const Partition partition = make_partition(options, data);
  expect_partition_of(partition, 120);
  const Ids sorted = sorted_by_label(data);
  std::multiset<std::size_t> shards;
  for (std::int64_t k = 0; k < 8; ++k) {
    const Ids mine = owned(partition, k);
    EXPECT_EQ(mine.size(), 15U);
    for (std::size_t shard = 0; shard < 24; ++shard) {
      const auto begin = sorted.begin() + static_cast<std::ptrdiff_t>(5 * shard);
      const auto held = std::count_if(begin, begin + 5, [&](std::int64_t id) {
        return std::binary_search(mine.begin(), mine.end(), id);
      });
      EXPECT_TRUE(held == 0 || held == 5) << "client " << k << " shard " << shard;
      if (held == 5) shards.insert(shard);
    }
  }
  EXPECT_EQ(shards.size(), 24U);
  EXPECT_EQ(std::set<std::size_t>(shards.begin(), shards.end()).size(), 24U);
}

TEST(ShardsTest, AClientHoldsFewLabels) {
  const TableDataset data = balanced(10, 100);
  for (const std::int64_t each : {1, 2, 5}) {
    DataOptions options = options_for("shards", 20);
    options.shards_per_client = each;  // 20 each shards, which never cross a label
    const Partition partition = make_partition(options, data);
    std::size_t most = 0;
    for (std::int64_t k = 0; k < 20; ++k) {
      const std::size_t labels = labels_of(data, partition, k).size();
      EXPECT_LE(labels, static_cast<std::size_t>(each));
      most = std::max(most, labels);
    }
    EXPECT_GT(most, each == 1 ? 0U : 1U) << "shards are drawn, not dealt in order";
  }
}

TEST(ShardsTest, UnevenSamplesMakeShardsThatDifferByOne) {
  const TableDataset data = balanced(3, 11);  // 33 samples, 8 shards of 5 and 4
  DataOptions options = options_for("shards", 4);
  const Partition partition = make_partition(options, data);
  expect_partition_of(partition, 33);
  for (std::int64_t k = 0; k < 4; ++k) {
    EXPECT_GE(owned(partition, k).size(), 8U);
    EXPECT_LE(owned(partition, k).size(), 10U);
  }
}

TEST(ShardsTest, MoreShardsThanSamplesAreRefused) {
  const TableDataset data = balanced(3, 10);
  DataOptions options = options_for("shards", 10);
  options.shards_per_client = 3;
  EXPECT_EQ(make_partition(options, data).clients(), 10);
  options.shards_per_client = 4;
  expect_in("data.shards_per_client = 4 for data.clients = 10 asks for more shards than the 30",
            message_of<ConfigError>([&] { make_partition(options, data); }));
}

}  // namespace
}  // namespace fedhpc
