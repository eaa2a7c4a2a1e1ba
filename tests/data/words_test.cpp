#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include <gtest/gtest.h>

#include "fedhpc/core/rng.hpp"

#include "data/data_support.hpp"

namespace fedhpc {
namespace {

using namespace testing_support;

constexpr std::int64_t kClients = 3;
constexpr std::int64_t kLength = 12;
constexpr std::int64_t kWords = 20;

DataOptions options_for(std::int64_t samples, double own, DataSplit split = DataSplit::Client) {
  DataOptions options;
  options.name = "words";
  options.clients = kClients;
  options.samples_per_client = samples;
  options.features = kLength;
  options.classes = kWords;
  options.own_words = own;
  options.split = split;
  options.seed = 5;
  return options;
}

/// How often each pair of client and word was followed by each word.
using Followers = std::map<std::pair<std::int64_t, std::int64_t>, std::array<double, kWords>>;

Followers count(const Dataset& data) {
  const Samples all = all_of(data);
  const std::vector<std::int64_t> clients = data.natural_clients();
  Followers followers;
  const auto words = all.features.accessor<double, 2>();
  const auto next = all.targets.accessor<std::int64_t, 2>();
  for (std::int64_t i = 0; i < words.size(0); ++i) {
    for (std::int64_t at = 0; at < kLength; ++at) {
      const auto word = static_cast<std::int64_t>(words[i][at]);
      ++followers[{clients[i], word}][static_cast<std::size_t>(next[i][at])];
    }
  }
  return followers;
}

TEST(WordsTest, EachWordIsFollowedByTheNext) {
  const auto data = open_dataset(options_for(20, 0.3, DataSplit::Official));
  EXPECT_EQ(data->num_train(), 60);
  EXPECT_EQ(data->num_test(), 12);
  EXPECT_EQ(data->classes(), kWords);
  EXPECT_EQ(data->shape(), (std::vector<std::int64_t>{kLength}));
  EXPECT_EQ(data->targets().count, kLength);
  EXPECT_EQ(std::ssize(data->targets().values), kWords);
  const Samples all = all_of(*data);
  EXPECT_TRUE(all.features.narrow(1, 1, kLength - 1)
                  .equal(all.targets.narrow(1, 0, kLength - 1).to(at::kDouble)));
  EXPECT_TRUE(all.labels.equal(all.targets.select(1, kLength - 1)));
  EXPECT_EQ(std::vector<std::int64_t>(all.labels.data_ptr<std::int64_t>(),
                                      all.labels.data_ptr<std::int64_t>() + 72),
            data->labels());
}

TEST(WordsTest, ASampleDependsOnSeedClientAndNumberAlone) {
  const auto data = open_dataset(options_for(20, 0.3, DataSplit::Official));
  const Samples all = all_of(*data);
  const Samples pair = data->read(std::vector<std::int64_t>{71, 3});
  EXPECT_TRUE(pair.targets[0].equal(all.targets[71]));
  EXPECT_TRUE(pair.features[1].equal(all.features[3]));
  const Samples more = all_of(*open_dataset(options_for(50, 0.3)));
  EXPECT_TRUE(more.features.narrow(0, 50, 20).equal(all.features.narrow(0, 20, 20)))
      << "more samples, the same first ones of each client";
  DataOptions other = options_for(20, 0.3, DataSplit::Official);
  other.seed = 6;
  EXPECT_FALSE(all_of(*open_dataset(other)).features.equal(all.features));
}

/// The draws as they are written down: successors of word w for client k, or of all for k < 0.
std::array<std::int64_t, 4> successors(std::int64_t client, std::int64_t word, double own) {
  DrawKey key{.seed = 5, .purpose = Purpose::Generator, .pass = 2};
  key.epoch = static_cast<std::uint64_t>(word);
  Draws common(key);
  Draws draws = common;
  if (client >= 0) {
    key.pass = 1;
    key.client = static_cast<std::uint64_t>(client);
    Draws of_client(key);
    if (of_client.uniform() < own) draws = of_client;
  }
  std::array<std::int64_t, 4> words;
  for (std::int64_t& one : words) one = draws.below(kWords);
  return words;
}

TEST(WordsTest, FollowersHaveTheirProbabilities) {
  constexpr std::array<double, 4> kShares = {0.5, 0.25, 0.125, 0.125};
  const Followers followers = count(*open_dataset(options_for(4000, 0.3)));
  std::int64_t own = 0;
  for (const auto& [place, counts] : followers) {
    const auto expected = successors(place.first, place.second, 0.3);
    own += expected != successors(-1, place.second, 0.3);
    const double all = std::accumulate(counts.begin(), counts.end(), 0.0);
    std::array<double, kWords> shares{};
    for (std::size_t j = 0; j < 4; ++j) shares[static_cast<std::size_t>(expected[j])] += kShares[j];
    for (std::size_t word = 0; word < counts.size(); ++word) {
      // Five standard deviations of a count.
      EXPECT_LE(std::abs(counts[word] - all * shares[word]),
                5 * std::sqrt(all * shares[word] * (1 - shares[word])));
    }
  }
  EXPECT_GT(own, 0);
  EXPECT_LT(own, std::ssize(followers) / 2);
}

TEST(WordsTest, OwnWordsGoFromNoneToAll) {
  for (std::int64_t word = 0; word < kWords; ++word) {
    for (std::int64_t client = 0; client < kClients; ++client) {
      EXPECT_EQ(successors(client, word, 0), successors(-1, word, 0));
    }
  }
  const Samples same = all_of(*open_dataset(options_for(20, 0)));
  const Samples own = all_of(*open_dataset(options_for(20, 1)));
  EXPECT_TRUE(same.features.select(1, 0).equal(own.features.select(1, 0)))
      << "the same first words";
  EXPECT_FALSE(same.targets.equal(own.targets));
  for (const auto& [place, counts] : count(*open_dataset(options_for(400, 0)))) {
    const auto common = successors(-1, place.second, 0);
    for (std::size_t word = 0; word < counts.size(); ++word) {
      const bool follows = std::count(common.begin(), common.end(), word) > 0;
      EXPECT_TRUE(follows || counts[word] == 0);
    }
  }
}

}  // namespace
}  // namespace fedhpc
