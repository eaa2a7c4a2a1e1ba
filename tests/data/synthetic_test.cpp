#include <algorithm>
#include <cmath>
#include <utility>

#include <gtest/gtest.h>

#include "fedhpc/core/rng.hpp"
#include "fedhpc/data/partition.hpp"

#include "data/data_support.hpp"

namespace fedhpc {
namespace {

DataOptions small(DataSplit split = DataSplit::Client) {
  DataOptions options;
  options.name = "synthetic";
  options.partition = "natural";
  options.clients = 4;
  options.samples_per_client = 10;
  options.features = 6;
  options.classes = 3;
  options.split = split;
  options.seed = 8;
  return options;
}

void expect_definition(const DataOptions& options) {
  const auto data = open_dataset(options);
  for (const std::int64_t k : {0, 3}) {
    const auto client = static_cast<std::uint64_t>(k);
    Draws model({.seed = 8, .purpose = Purpose::Generator, .client = client});
    const double u = options.synthetic_alpha * model.normal();
    const double b = options.synthetic_beta * model.normal();
    std::vector<double> weight(18), bias(3), mean(6);
    for (double& w : weight) w = u + model.normal();
    for (double& w : bias) w = u + model.normal();
    for (double& w : mean) w = b + model.normal();
    for (const std::int64_t i : {0, 9}) {
      Draws draws({.seed = 8,
                   .purpose = Purpose::Generator,
                   .pass = 1,
                   .epoch = static_cast<std::uint64_t>(i),
                   .client = client});
      std::vector<double> scores = bias;
      const std::vector<std::int64_t> id = {k * 10 + i};
      const Samples sample = data->read(id);
      for (std::size_t j = 0; j < 6; ++j) {
        const double x = mean[j] + std::sqrt(std::pow(double(j + 1), -1.2)) * draws.normal();
        EXPECT_NEAR(sample.features.data_ptr<double>()[j], x, 1e-12);
        for (std::size_t c = 0; c < 3; ++c) scores[c] += weight[c * 6 + j] * x;
      }
      const auto best = std::max_element(scores.begin(), scores.end()) - scores.begin();
      EXPECT_EQ(*sample.labels.data_ptr<std::int64_t>(), best);
      EXPECT_EQ(data->labels()[id[0]], best);
    }
  }
}

TEST(SyntheticTest, FollowsTheDefinition) {
  DataOptions options = small();
  EXPECT_EQ(options.synthetic_alpha, 0.5);
  EXPECT_EQ(options.synthetic_beta, 0.5);
  for (const auto& [alpha, beta] : {std::pair(0.5, 0.5), {2.0, 0.25}, {0.0, 0.0}}) {
    options.synthetic_alpha = alpha;
    options.synthetic_beta = beta;
    SCOPED_TRACE(::testing::Message() << "alpha = " << alpha << ", beta = " << beta);
    expect_definition(options);
  }
}

TEST(SyntheticTest, ClientsAreNatural) {
  const DataOptions options = small();
  const auto data = open_dataset(options);
  const Partition partition = make_partition(options, *data);
  ASSERT_EQ(partition.clients(), 4);
  for (std::int64_t k = 0; k < 4; ++k) {
    EXPECT_EQ(partition.train.count(k), 8);
    EXPECT_EQ(partition.test.count(k), 2);
    for (const std::int64_t id : partition.train.of(k)) EXPECT_EQ(id / 10, k);
    for (const std::int64_t id : partition.test.of(k)) EXPECT_EQ(id / 10, k);
  }
}

TEST(SyntheticTest, TheOfficialTestSetIsAFurtherFifthPerClient) {
  const DataOptions options = small(DataSplit::Official);
  const auto data = open_dataset(options);
  EXPECT_EQ(data->num_train(), 40);
  EXPECT_EQ(data->num_test(), 8);
  const std::vector<std::int64_t> clients = data->natural_clients();
  EXPECT_EQ(std::vector<std::int64_t>(clients.begin() + 40, clients.end()),
            (std::vector<std::int64_t>{0, 0, 1, 1, 2, 2, 3, 3}));
  const Partition partition = make_partition(options, *data);
  EXPECT_EQ(partition.train.count(2), 10);
  EXPECT_TRUE(partition.test.samples.empty());

  const auto merged = open_dataset(small());
  const std::vector<std::int64_t> train = {25};
  EXPECT_TRUE(data->read(train).features.equal(merged->read(train).features))
      << "training samples are the same with and without a test set";
  const std::vector<std::int64_t> both = {44, 20};
  const Tensor rows = data->read(both).features;
  EXPECT_NE(rows.data_ptr<double>()[0], rows.data_ptr<double>()[6]);
}

/// The first and the eighth sample of a client of ten.
Samples two_of(const Dataset& data, std::int64_t client) {
  const std::vector<std::int64_t> ids = {client * 10, client * 10 + 7};
  return data.read(ids);
}

TEST(SyntheticTest, ClientsOfAClusterShareLabellingAndMean) {
  DataOptions options = small();
  options.clients = 7;
  options.synthetic_clusters = 3;
  const auto data = open_dataset(options);
  options.synthetic_clusters = 0;
  const auto alone = open_dataset(options);
  for (std::int64_t k = 0; k < 7; ++k) {
    const auto owner = static_cast<std::uint64_t>(k % 3);
    Draws model({.seed = 8, .purpose = Purpose::Generator, .client = owner});
    const double u = 0.5 * model.normal();
    const double b = 0.5 * model.normal();
    std::vector<double> weight(18), bias(3), mean(6);
    for (double& w : weight) w = u + model.normal();
    for (double& w : bias) w = u + model.normal();
    for (double& w : mean) w = b + model.normal();
    const Samples samples = two_of(*data, k);
    for (const std::int64_t i : {0, 1}) {
      Draws draws({.seed = 8,
                   .purpose = Purpose::Generator,
                   .pass = 1,
                   .epoch = static_cast<std::uint64_t>(7 * i),
                   .client = static_cast<std::uint64_t>(k)});
      const double* x = samples.features.data_ptr<double>() + 6 * i;
      std::vector<double> scores = bias;
      for (std::size_t j = 0; j < 6; ++j) {
        EXPECT_NEAR(x[j], mean[j] + std::pow(double(j + 1), -0.6) * draws.normal(), 1e-12);
        for (std::size_t c = 0; c < 3; ++c) scores[c] += weight[c * 6 + j] * x[j];
      }
      const auto best = std::max_element(scores.begin(), scores.end()) - scores.begin();
      EXPECT_EQ(samples.labels.data_ptr<std::int64_t>()[i], best);
      EXPECT_EQ(data->labels()[static_cast<std::size_t>(k * 10 + 7 * i)], best);
    }
    EXPECT_EQ(samples.features.equal(two_of(*alone, k).features), k < 3)
        << "the first client of a cluster has the model it would have alone";
  }
}

TEST(SyntheticTest, AsManyClustersAsClientsAreNone) {
  DataOptions options = small(DataSplit::Official);
  const auto alone = open_dataset(options);
  std::vector<std::int64_t> ids(48);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i);
  for (const std::int64_t clusters : {4, 9}) {
    options.synthetic_clusters = clusters;
    const auto data = open_dataset(options);
    EXPECT_TRUE(data->read(ids).features.equal(alone->read(ids).features));
    EXPECT_EQ(data->labels(), alone->labels());
  }
}

}  // namespace
}  // namespace fedhpc
