#include <algorithm>
#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "data/data_support.hpp"

namespace fedhpc {
namespace {

using namespace testing_support;

constexpr std::int64_t kFeatures = 54;

DataOptions options_for(std::int64_t samples, DataSplit split = DataSplit::Client) {
  DataOptions options;
  options.name = "covtype_like";
  options.clients = 3;
  options.samples_per_client = samples;
  options.split = split;
  options.seed = 5;
  return options;
}

TEST(CovtypeLikeTest, SizesFollowTheOptions) {
  const auto client = open_dataset(options_for(20));
  EXPECT_EQ(client->num_train(), 60);
  EXPECT_EQ(client->num_test(), 0);
  EXPECT_EQ(client->classes(), 7);
  EXPECT_EQ(client->shape(), (std::vector<std::int64_t>{kFeatures}));
  const auto official = open_dataset(options_for(20, DataSplit::Official));
  EXPECT_EQ(official->num_train(), 60);
  EXPECT_EQ(official->num_test(), 12);
}

TEST(CovtypeLikeTest, ASampleDependsOnSeedAndIdAlone) {
  const auto data = open_dataset(options_for(20, DataSplit::Official));
  const Samples all = all_of(*data);
  EXPECT_EQ(std::vector<std::int64_t>(all.labels.data_ptr<std::int64_t>(),
                                      all.labels.data_ptr<std::int64_t>() + 72),
            data->labels());
  const std::vector<std::int64_t> some = {71, 3};
  const Samples pair = data->read(some);
  EXPECT_TRUE(pair.features[0].equal(all.features[71]));
  EXPECT_TRUE(pair.features[1].equal(all.features[3]));
  const auto more = open_dataset(options_for(50));
  EXPECT_TRUE(all_of(*more).features.narrow(0, 0, 60).equal(all.features.narrow(0, 0, 60)))
      << "more samples, the same first ones";
  DataOptions other = options_for(20, DataSplit::Official);
  other.seed = 6;
  EXPECT_FALSE(all_of(*open_dataset(other)).features.equal(all.features));
}

TEST(CovtypeLikeTest, ColumnsAreThoseOfCovertype) {
  constexpr std::int64_t kSamples = 15000;
  const Samples samples = all_of(*open_dataset(options_for(kSamples / 3)));
  const double* row = samples.features.data_ptr<double>();
  std::array<double, 10> sums{}, squares{};
  std::array<std::int64_t, 44> categories{};
  for (std::int64_t i = 0; i < kSamples; ++i, row += kFeatures) {
    for (std::size_t j = 0; j < 10; ++j) {
      sums[j] += row[j] / kSamples;
      squares[j] += row[j] * row[j] / kSamples;
    }
    const double* hot = row + 10;
    ASSERT_EQ(std::count(hot, hot + 4, 1.0), 1);
    ASSERT_EQ(std::count(hot, hot + 4, 0.0), 3);
    ASSERT_EQ(std::count(hot + 4, hot + 44, 1.0), 1);
    ASSERT_EQ(std::count(hot + 4, hot + 44, 0.0), 39);
    for (std::size_t k = 0; k < 44; ++k) categories[k] += hot[k] == 1;
  }
  for (std::size_t j = 0; j < 10; ++j) {
    EXPECT_LT(std::abs(sums[j]), 0.6) << j;
    const double deviation = std::sqrt(squares[j] - sums[j] * sums[j]);
    EXPECT_GT(deviation, 0.75) << j;
    EXPECT_LT(deviation, 1.3) << j;
  }
  for (std::size_t k = 0; k < 44; ++k) EXPECT_GT(categories[k], 0) << k;
}

TEST(CovtypeLikeTest, ClassesHaveTheSharesOfCovertype) {
  const std::vector<std::int64_t> labels = open_dataset(options_for(20000))->labels();
  const std::array<double, 7> percent = {36.5, 48.8, 6.2, .5, 1.6, 3.0, 3.5};
  for (std::size_t y = 0; y < 7; ++y) {
    const auto count = std::count(labels.begin(), labels.end(), static_cast<std::int64_t>(y));
    const double share = 100.0 * static_cast<double>(count) / 60000;
    // Four deviations of a share of 60000 draws, and the rounding of the table.
    EXPECT_NEAR(share, percent[y], 4 * std::sqrt(percent[y] * (100 - percent[y]) / 60000) + .05);
  }
}

/// Share of samples whose class is that of the nearest class mean, the larger class by its weight.
double by_nearest_mean(const Samples& train, const Samples& test) {
  std::vector<std::vector<double>> means(7, std::vector<double>(kFeatures, 0));
  std::vector<double> counts(7, 0);
  const auto* label = train.labels.data_ptr<std::int64_t>();
  const auto* x = train.features.data_ptr<double>();
  for (std::int64_t i = 0; i < train.labels.size(0); ++i, ++label, x += kFeatures) {
    counts[*label] += 1;
    for (std::int64_t j = 0; j < kFeatures; ++j) means[*label][j] += x[j];
  }
  for (std::size_t y = 0; y < 7; ++y) {
    for (double& mean : means[y]) mean /= counts[y];
  }
  std::int64_t correct = 0;
  label = test.labels.data_ptr<std::int64_t>();
  x = test.features.data_ptr<double>();
  for (std::int64_t i = 0; i < test.labels.size(0); ++i, ++label, x += kFeatures) {
    std::vector<double> scores;
    for (std::size_t y = 0; y < 7; ++y) {
      double distance = 0;
      for (std::int64_t j = 0; j < kFeatures; ++j) {
        distance += (x[j] - means[y][j]) * (x[j] - means[y][j]);
      }
      scores.push_back(std::log(counts[y]) - distance / 2);
    }
    correct += std::max_element(scores.begin(), scores.end()) - scores.begin() == *label;
  }
  return static_cast<double>(correct) / static_cast<double>(test.labels.size(0));
}

TEST(CovtypeLikeTest, ALinearRuleBeatsTheLargestClass) {
  DataOptions other = options_for(3000);
  other.seed = 9;  // other samples of the same task
  const double accuracy =
      by_nearest_mean(all_of(*open_dataset(options_for(3000))), all_of(*open_dataset(other)));
  EXPECT_GT(accuracy, 0.6) << "the largest class is 0.488";
  EXPECT_LT(accuracy, 0.85) << "the task must leave something to learn";
}

}  // namespace
}  // namespace fedhpc
