#include "fedhpc/data/partition.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include <gtest/gtest.h>

#include "fedhpc/core/rng.hpp"

#include "data/data_support.hpp"
#include "data/partition_support.hpp"

namespace fedhpc {
namespace {

using namespace testing_support;

TEST(SampleListsTest, ListsFollowEachOther) {
  SampleLists lists;
  EXPECT_EQ(lists.size(), 0);
  lists.append(Ids{5, 6});
  lists.append({});
  lists.append(Ids{1});
  EXPECT_EQ(lists.size(), 3);
  EXPECT_EQ(lists.count(1), 0);
  EXPECT_EQ(Ids(lists.of(0).begin(), lists.of(0).end()), (Ids{5, 6}));
  EXPECT_EQ(lists.of(2)[0], 1);
  EXPECT_THROW(lists.count(3), std::logic_error);
  EXPECT_THROW(lists.of(-1), std::logic_error);
}

TEST(MakePartitionTest, RulesForAllSamplesDealEachOnce) {
  const TableDataset data = balanced(5, 31);
  for (const std::string rule : {"iid", "dirichlet", "shards"}) {
    DataOptions options = options_for(rule, 7);
    expect_partition_of(make_partition(options, data), 155);
    options.split = DataSplit::Official;
    const Partition official = make_partition(options, data);
    expect_partition_of(official, data.num_train());
    EXPECT_TRUE(official.test.samples.empty());
    EXPECT_EQ(official.test.size(), 7);
  }
}

TEST(MakePartitionTest, IsAFunctionOfTheSeed) {
  const TableDataset data = balanced(5, 40);
  for (const std::string rule : {"iid", "dirichlet", "labels", "shards", "pfedme"}) {
    DataOptions options = options_for(rule, 6);
    const Partition first = make_partition(options, data);
    const Partition again = make_partition(options, data);
    EXPECT_EQ(first.train.samples, again.train.samples);
    EXPECT_EQ(first.test.offsets, again.test.offsets);
    options.seed = 5;
    EXPECT_NE(first.train.samples, make_partition(options, data).train.samples);
  }
}

TEST(MakePartitionTest, ValidationSamplesAreTakenFromThoseForTraining) {
  const TableDataset data = balanced(5, 31);
  DataOptions options = options_for("dirichlet", 7);
  for (const DataSplit split : {DataSplit::Client, DataSplit::Official}) {
    options.split = split;
    options.validation_fraction = 0;
    const Partition all = make_partition(options, data);
    EXPECT_EQ(all.validation.size(), 0);
    options.validation_fraction = 0.3;
    const Partition partition = make_partition(options, data);
    EXPECT_EQ(partition.test.samples, all.test.samples);
    for (std::int64_t k = 0; k < 7; ++k) {
      const auto train = partition.train.of(k);
      const auto validation = partition.validation.of(k);
      EXPECT_EQ(validation.size(),
                static_cast<std::size_t>(0.3 * static_cast<double>(all.train.count(k))));
      EXPECT_TRUE(std::is_sorted(train.begin(), train.end()));
      Ids together(train.begin(), train.end());
      together.insert(together.end(), validation.begin(), validation.end());
      std::sort(together.begin(), together.end());
      EXPECT_EQ(together, Ids(all.train.of(k).begin(), all.train.of(k).end()));
    }
    const Partition tested = tested_on_validation(partition);
    EXPECT_EQ(tested.test.samples, partition.validation.samples);
    EXPECT_EQ(tested.train.size(), 7);
    EXPECT_TRUE(tested.train.samples.empty());
  }
}

TEST(MakePartitionTest, TheLeastConcentrationGivesEachLabelToOneClient) {
  const TableDataset data = balanced(4, 10);
  DataOptions options = options_for("dirichlet", 3);
  options.alpha = 1e-9;
  options.min_samples = 0;
  const Partition partition = make_partition(options, data);
  for (std::int64_t label = 0; label < 4; ++label) {
    std::int64_t holders = 0;
    for (std::int64_t client = 0; client < 3; ++client) {
      const auto ids = partition.train.of(client);
      holders += std::ranges::any_of(ids, [&](std::int64_t id) {
        return data.labels()[static_cast<std::size_t>(id)] == label;
      });
    }
    EXPECT_EQ(holders, 1) << label;
  }
}

TEST(MakePartitionTest, AShareThatSetsNothingAsideIsRefused) {
  const TableDataset data = balanced(3, 10);
  DataOptions options = options_for("iid", 3);
  options.validation_fraction = 0.05;
  EXPECT_NE(
      message_of<ConfigError>([&] { make_partition(options, data); }).find("sets no sample aside"),
      std::string::npos);
}

TEST(MakePartitionTest, WhatIsSetAsideIsADrawOfTheClient) {
  const TableDataset data = balanced(3, 10);
  DataOptions options = options_for("iid", 2);
  const Partition all = make_partition(options, data);
  options.validation_fraction = 0.5;
  const Partition partition = make_partition(options, data);
  for (std::uint64_t k = 0; k < 2; ++k) {
    const auto train = all.train.of(static_cast<std::int64_t>(k));
    const auto n = static_cast<std::int64_t>(train.size());
    Ids expected;
    for (const std::int64_t i :
         permutation_prefix({.seed = 4, .purpose = Purpose::Validation, .client = k}, n, n / 2)) {
      expected.push_back(train[i]);
    }
    std::sort(expected.begin(), expected.end());
    const auto validation = partition.validation.of(static_cast<std::int64_t>(k));
    EXPECT_EQ(Ids(validation.begin(), validation.end()), expected);
  }
}

TEST(IidTest, PartsOfThePermutationAreEqualInSize) {
  const TableDataset data = balanced(3, 10);
  const DataOptions options = options_for("iid", 4);
  const Partition partition = make_partition(options, data);
  const Ids order = permutation({.seed = 4, .purpose = Purpose::Partition}, 30);
  const Ids bounds = {0, 8, 16, 23, 30};
  for (std::int64_t k = 0; k < 4; ++k) {
    Ids expected(order.begin() + bounds[k], order.begin() + bounds[k + 1]);
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(owned(partition, k), expected);
  }
}

TEST(IidTest, MoreClientsThanSamplesLeaveSomeEmpty) {
  const TableDataset data = balanced(2, 5);
  const Partition partition = make_partition(options_for("iid", 13), data);
  expect_partition_of(partition, 10);
  EXPECT_EQ(owned(partition, 9).size(), 1U);
  EXPECT_EQ(owned(partition, 12).size(), 0U);
}

TEST(SplitTest, TrainsOnTheFirstPartOfThePermutationOfAscendingIds) {
  const TableDataset data = balanced(3, 10);
  for (const double fraction : {0.1, 0.5, 0.75, 0.8, 1.0}) {
    DataOptions options = options_for("iid", 4);
    options.train_fraction = fraction;
    const Partition partition = make_partition(options, data);
    for (std::int64_t k = 0; k < 4; ++k) {
      const Ids ids = owned(partition, k);
      const auto n = static_cast<std::int64_t>(ids.size());
      const auto num_train = static_cast<std::int64_t>(fraction * static_cast<double>(n) + 0.5);
      const Ids order = permutation(
          {.seed = 4, .purpose = Purpose::Split, .client = static_cast<std::uint64_t>(k)}, n);
      Ids train;
      for (std::int64_t i = 0; i < num_train; ++i) train.push_back(ids[order[i]]);
      std::sort(train.begin(), train.end());
      EXPECT_EQ(Ids(partition.train.of(k).begin(), partition.train.of(k).end()), train);
    }
  }
}

TEST(DirichletTest, TheSmallestClientHoldsEnough) {
  const TableDataset data = balanced(10, 200);
  for (const double alpha : {0.1, 0.5, 100.0}) {
    DataOptions options = options_for("dirichlet", 20);
    options.alpha = alpha;
    options.min_samples = 10;
    const Partition partition = make_partition(options, data);
    expect_partition_of(partition, 2000);
    for (std::int64_t k = 0; k < 20; ++k) EXPECT_GE(owned(partition, k).size(), 10U);
  }
}

TEST(DirichletTest, AFullClientGetsNoFurtherLabel) {
  const TableDataset data = balanced(10, 400);
  const Ids labels = data.labels();
  const Partition partition = make_partition(options_for("dirichlet", 20), data);
  std::int64_t full = 0;
  for (std::int64_t k = 0; k < 19; ++k) {  // the last client also takes what rounding leaves over
    Ids counts(10, 0);
    for (const std::int64_t id : owned(partition, k)) ++counts[labels[id]];
    std::int64_t held = 0;
    for (const std::int64_t count : counts) {
      if (held >= 4000 / 20) {
        EXPECT_EQ(count, 0) << "client " << k;
        ++full;
      }
      held += count;
    }
  }
  EXPECT_GT(full, 0) << "some client filled up before the last label";
}

TEST(DirichletTest, AlphaRunsFromSkewedToEven) {
  const TableDataset data = balanced(10, 400);
  const Ids labels = data.labels();
  // Mean over clients of the share of a client's most frequent label: 0.1 when even, 1 when single.
  const auto skew = [&](double alpha) {
    DataOptions options = options_for("dirichlet", 20);
    options.alpha = alpha;
    const Partition partition = make_partition(options, data);
    double sum = 0;
    for (std::int64_t k = 0; k < 20; ++k) {
      std::vector<double> counts(10, 0);
      for (const std::int64_t id : owned(partition, k)) ++counts[labels[id]];
      sum += *std::max_element(counts.begin(), counts.end()) /
             std::accumulate(counts.begin(), counts.end(), 0.0);
    }
    return sum / 20;
  };
  EXPECT_LT(skew(1000), 0.13);
  EXPECT_GT(skew(0.05), 0.5);
  EXPECT_GT(skew(0.05), skew(1));
}

TEST(DirichletTest, AnImpossibleMinimumIsRefused) {
  const TableDataset data = balanced(10, 20);
  DataOptions options = options_for("dirichlet", 20);
  options.min_samples = 11;
  expect_in("data.min_samples = 11 for data.clients = 20 needs more than the 200 samples",
            message_of<ConfigError>([&] { make_partition(options, data); }));
  options.min_samples = 10;
  options.alpha = 0.05;
  const std::string message = message_of<ConfigError>([&] { make_partition(options, data); });
  expect_in("data.alpha = 0.05", message);
  expect_in("in 2000 tries: the best one left ", message);
  expect_in(" with less; lower data.min_samples or data.clients, or raise data.alpha", message);
  options.alpha = 1e-300;  // every gamma draw underflows to 0
  expect_in("tries", message_of<ConfigError>([&] { make_partition(options, data); }));
}

TEST(DirichletTest, AHopelessMinimumIsRefusedAfterAFewTries) {
  const TableDataset data = balanced(10, 300);
  DataOptions options = options_for("dirichlet", 300);
  options.alpha = 0.05;
  options.min_samples = 10;
  expect_in("in 5 tries: the best one left ",
            message_of<ConfigError>([&] { make_partition(options, data); }));
}

TEST(MakePartitionTest, OptionsThatDoNotFitAreRefused) {
  const TableDataset data = balanced(3, 10);
  const auto refusal = [&](auto&& change) {
    DataOptions options = options_for("labels", 3);
    change(options);
    return message_of<ConfigError>([&] { make_partition(options, data); });
  };
  expect_in("must be set together", refusal([](DataOptions& o) { o.train_per_class = 1; }));
  expect_in("must be set together", refusal([](DataOptions& o) { o.test_per_class = 1; }));
  expect_in("need data.partition = labels and data.split = client", refusal([](DataOptions& o) {
              o.train_per_class = o.test_per_class = 1;
              o.partition = "iid";
            }));
  expect_in("need data.partition = labels and data.split = client", refusal([](DataOptions& o) {
              o.train_per_class = o.test_per_class = 1;
              o.split = DataSplit::Official;
            }));
  expect_in("data.labels_per_client = 4, but glyphs has 3 labels",
            refusal([](DataOptions& o) { o.labels_per_client = 4; }));
  expect_in("natural needs data made of clients",
            refusal([](DataOptions& o) { o.partition = "natural"; }));
  expect_in("needs the key data.partition_file",
            refusal([](DataOptions& o) { o.partition = "file"; }));
  expect_in("is read with data.partition = file only",
            refusal([](DataOptions& o) { o.partition_file = "p.h5"; }));
  const TableDataset without_test({0, 1, 2}, 3, 3);
  DataOptions official = options_for("iid", 3);
  official.split = DataSplit::Official;
  expect_in("data.split = official needs a data set with a test set",
            message_of<ConfigError>([&] { make_partition(official, without_test); }));
}

TEST(MakePartitionTest, NaturalClientsAreAsManyAsAsked) {
  DataOptions options = options_for("natural", 4);
  options.name = "synthetic";
  options.samples_per_client = 3;
  const auto data = open_dataset(options);
  options.clients = 5;
  expect_in("data.clients = 5, but synthetic has 4 natural clients; set data.clients = 4",
            message_of<ConfigError>([&] { make_partition(options, *data); }));
}

TEST(LeakedSamplesTest, CountsDifferentSamplesOnce) {
  Partition partition;
  partition.train.append(Ids{1, 2, 3});
  partition.train.append(Ids{3, 4, 7});
  partition.test.append(Ids{5, 7, 9});
  partition.test.append(Ids{3, 6, 3});
  EXPECT_EQ(leaked_samples(partition), 2);
}

/// What is refused of a partition of a plug-in: four clients with three samples each, changed.
std::string refused_of_plugin(const std::function<void(Partition&)>& change) {
  partitioner_registry().add("dealt", "a partitioner of this test",
                             [change](const DataOptions&, const Dataset&) {
                               Partition partition;
                               for (std::int64_t k = 0; k < 4; ++k) {
                                 partition.train.append(Ids{3 * k, 3 * k + 1});
                                 partition.test.append(Ids{3 * k + 2});
                               }
                               change(partition);
                               return partition;
                             });
  return message_of<DataError>([] { make_partition(options_for("dealt", 4), balanced(2, 6)); });
}

TEST(MakePartitionTest, OfAPluginIsCheckedAsAFileIs) {
  for (const std::int64_t wrong : {-1, 12}) {
    EXPECT_EQ(refused_of_plugin([&](Partition& partition) { partition.train.samples[3] = wrong; }),
              concat("data.partition = dealt, list 'train_samples': found sample ", wrong,
                     " at entry 3, expected 0 to 11"));
  }
  EXPECT_EQ(refused_of_plugin([](Partition& partition) { partition.test.append({}); }),
            "data.partition = dealt, list 'test_offsets': found 5 clients, expected 4 as in "
            "train_offsets");
  EXPECT_EQ(refused_of_plugin([](Partition& partition) {
              partition.train.append({});
              partition.test.append({});
            }),
            "data.partition = dealt has made lists of 5 clients, expected data.clients = 4");
  EXPECT_EQ(refused_of_plugin([](Partition& partition) { partition.edge_of_client = {0}; }),
            "data.partition = dealt, list 'edge_of_client': found 1 clients, expected 4");
  EXPECT_EQ(
      refused_of_plugin([](Partition& partition) { partition.train.offsets.back() = 99; }),
      "data.partition = dealt, list 'train_samples': found 8 samples, expected 99 as the last "
      "offset says");
  EXPECT_EQ(refused_of_plugin([](Partition& partition) { partition = {}; }),
            "data.partition = dealt, list 'train_offsets': found no client, expected at least one");
}

}  // namespace
}  // namespace fedhpc
