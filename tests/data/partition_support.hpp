#pragma once

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "fedhpc/data/partition.hpp"

namespace fedhpc::testing_support {

using Ids = std::vector<std::int64_t>;
using Labels = std::set<std::int64_t>;

inline DataOptions options_for(const std::string& rule, std::int64_t clients) {
  DataOptions options;
  options.partition = rule;
  options.clients = clients;
  options.min_samples = 1;
  options.seed = 4;
  return options;
}

/// Training samples of each of 20 users in pFedMe's script on MNIST with 2 and with 5 labels each
/// (numpy.random.seed(1)).
inline std::map<std::int64_t, Ids> published_pfedme_sizes() {
  return {{2, {1824, 2451, 1566, 1362, 1470, 975, 582, 213, 231, 78,
               24,   79,   63,   23,   33,   30,  17,  21,  4,   30}},
          {5, {3087, 6324, 3405, 4637, 4119, 1656, 1333, 480, 535, 219,
               267,  145,  122,  120,  122,  60,   42,   39,  17,  66}}};
}

/// All samples of a client, ascending.
inline Ids owned(const Partition& partition, std::int64_t client) {
  Ids ids(partition.train.of(client).begin(), partition.train.of(client).end());
  ids.insert(ids.end(), partition.test.of(client).begin(), partition.test.of(client).end());
  std::sort(ids.begin(), ids.end());
  return ids;
}

inline Labels labels_of(const Dataset& data, const Partition& partition, std::int64_t client) {
  const Ids labels = data.labels();
  Labels held;
  for (const std::int64_t id : owned(partition, client)) held.insert(labels[id]);
  return held;
}

/// Training samples of every client.
inline Ids train_sizes(const Partition& partition) {
  Ids sizes;
  for (std::int64_t k = 0; k < partition.clients(); ++k) sizes.push_back(partition.train.count(k));
  return sizes;
}

/// Every sample of 0..count-1 once, and every list ascending.
inline void expect_partition_of(const Partition& partition, std::int64_t count) {
  Ids all;
  for (std::int64_t k = 0; k < partition.clients(); ++k) {
    const Ids ids = owned(partition, k);
    all.insert(all.end(), ids.begin(), ids.end());
    EXPECT_TRUE(std::is_sorted(partition.train.of(k).begin(), partition.train.of(k).end()));
    EXPECT_TRUE(std::is_sorted(partition.test.of(k).begin(), partition.test.of(k).end()));
  }
  std::sort(all.begin(), all.end());
  Ids expected(static_cast<std::size_t>(count));
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(all, expected);
}

}  // namespace fedhpc::testing_support
