#include "fedhpc/core/rng.hpp"

#include <cmath>
#include <set>

#include <gtest/gtest.h>

namespace fedhpc {
namespace {

struct KnownWords {
  DrawKey key;
  std::array<std::uint64_t, 6> words;
};

// numpy.random.Philox(key=[seed, purpose], counter=[0, pass<<32|epoch, client,
// round]).random_raw(6)
TEST(DrawsTest, GivesTheWordsOfNumpy) {
  constexpr std::uint64_t kLast = ~std::uint64_t{0};
  constexpr std::uint64_t kLast32 = 0xFFFFFFFF;
  const std::vector<KnownWords> table = {
      {{.seed = 0, .purpose = Purpose::Init},
       {0xd037f8c3f9a1d176, 0xc057419b4c210765, 0xabf13115117b0065, 0x7bae035dea6ea5c0,
        0xb487ac82e7ddd46f, 0x45e81edba7c59426}},
      {{.seed = 1, .purpose = Purpose::Batches, .pass = 0, .epoch = 3, .client = 7, .round = 12},
       {0xf7df454dfa885bfc, 0x2f5365d5ca713e97, 0x5e83f0899a3d1a24, 0xf48a2f09f4640d20,
        0x71a7913debbe8e7f, 0x31e9c57881821671}},
      {{.seed = kLast,
        .purpose = Purpose::Generator,
        .pass = kLast32,
        .epoch = kLast32,
        .client = (std::uint64_t{1} << 63) + 5,
        .round = kLast},
       {0xcdb33abeee2e53d3, 0x31c655b6ddcdcc76, 0xbe42a3cbba307728, 0xc5595f1a57b8663f,
        0x1674f312b67f5c24, 0x38716c8de08060e8}},
      {{.seed = 42, .purpose = Purpose::Partition, .pass = 1, .epoch = 0, .client = 99, .round = 1},
       {0xb53c203f08025f6c, 0xeb16d1d19538dd20, 0x495b6dd5f439e2f3, 0x774feb9f69a69f23,
        0xb0cd5eaf5ac32917, 0x42caf61e23354337}},
  };
  for (const KnownWords& known : table) {
    Draws draws(known.key);
    for (const std::uint64_t word : known.words) EXPECT_EQ(draws.raw(), word);
  }
}

TEST(DrawsTest, ManyWordsAreTheSameAsOneByOne) {
  const DrawKey key{.seed = 3, .purpose = Purpose::Layers, .client = 8};
  Draws many(key);
  Draws one(key);
  for (const std::size_t count : {3UL, 16UL, 1UL, 0UL, 37UL, 64UL, 2UL}) {
    std::vector<std::uint64_t> words(count);
    many.raw(words);
    for (const std::uint64_t word : words) EXPECT_EQ(word, one.raw());
  }
  EXPECT_EQ(many.raw(), one.raw());
}

TEST(DrawsTest, UniformsAndNormalsFollowTheirFormulas) {
  const DrawKey key{.seed = 42, .purpose = Purpose::Partition, .pass = 1, .client = 99, .round = 1};
  Draws uniforms(key);
  EXPECT_EQ(uniforms.uniform(), 0.7079486993679976);
  EXPECT_EQ(uniforms.uniform(), 0.9183169495274542);
  EXPECT_EQ(uniforms.uniform(), 0.28655134652601744);
  Draws normals(key);
  EXPECT_NEAR(normals.normal(), 1.3668248043460993, 1e-14);
  EXPECT_NEAR(normals.normal(), -0.7703515848769976, 1e-14);
  EXPECT_NEAR(normals.normal(), -0.8031490854415667, 1e-14);
}

TEST(DrawsTest, EveryPartOfTheKeyMatters) {
  const std::vector<DrawKey> keys = {{},          {.seed = 1},  {.purpose = Purpose::Split},
                                     {.pass = 1}, {.epoch = 1}, {.client = 1},
                                     {.round = 1}};
  std::set<std::uint64_t> words;
  for (const DrawKey& key : keys) words.insert(Draws(key).raw());
  EXPECT_EQ(words.size(), keys.size());
}

TEST(DrawsTest, GammasHaveTheirMeanAndVariance) {
  constexpr int kCount = 200000;
  for (const double alpha : {0.1, 0.5, 1.0, 3.0}) {
    Draws draws({.seed = 5, .purpose = Purpose::Partition});
    double sum = 0;
    double squares = 0;
    for (int i = 0; i < kCount; ++i) {
      const double x = draws.gamma(alpha);
      ASSERT_GE(x, 0);
      sum += x;
      squares += x * x;
    }
    const double mean = sum / kCount;
    const double variance = squares / kCount - mean * mean;
    // Five standard errors; the fourth central moment of Gamma(a, 1) is 3a^2 + 6a.
    EXPECT_NEAR(mean, alpha, 5 * std::sqrt(alpha / kCount));
    EXPECT_NEAR(variance, alpha, 5 * std::sqrt((2 * alpha * alpha + 6 * alpha) / kCount));
  }
  EXPECT_THROW(Draws({}).gamma(0), std::logic_error);
}

TEST(DrawsTest, IntegersCoverTheirRange) {
  Draws draws({.seed = 3});
  std::vector<int> counts(7, 0);
  for (int i = 0; i < 7000; ++i) ++counts.at(static_cast<std::size_t>(draws.below(7)));
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);
  EXPECT_EQ(draws.below(1), 0);
  EXPECT_THROW(draws.below(0), std::logic_error);
}

TEST(PermutationTest, IsNumpysStableArgsort) {
  const DrawKey key{.seed = 42, .purpose = Purpose::Partition, .pass = 1, .client = 99, .round = 1};
  EXPECT_EQ(permutation(key, 12),
            (std::vector<std::int64_t>{6, 5, 2, 3, 10, 7, 4, 0, 9, 11, 8, 1}));
}

TEST(PermutationTest, APrefixIsTheStartOfTheWhole) {
  for (std::int64_t n = 0; n <= 40; ++n) {
    const DrawKey key{
        .seed = 9, .purpose = Purpose::Cohort, .round = static_cast<std::uint64_t>(n)};
    const std::vector<std::int64_t> whole = permutation(key, n);
    EXPECT_EQ(std::set<std::int64_t>(whole.begin(), whole.end()).size(), whole.size());
    for (std::int64_t length = 0; length <= n; ++length) {
      EXPECT_EQ(permutation_prefix(key, n, length),
                std::vector<std::int64_t>(whole.begin(), whole.begin() + length));
    }
  }
  EXPECT_THROW(permutation_prefix({}, 3, 4), std::logic_error);
}

TEST(PermutationTest, ASubsetHasWhatThePrefixHas) {
  for (const std::int64_t n : {0, 1, 2, 7, 40, 3000, 20000}) {
    const DrawKey key{.seed = 5, .purpose = Purpose::Codec, .round = static_cast<std::uint64_t>(n)};
    for (const std::int64_t count : {n / 1000, n / 3, n / 2, n - n / 7, n}) {
      std::vector<std::uint8_t> expected(static_cast<std::size_t>(n), 0);
      for (const std::int64_t i : permutation_prefix(key, n, count)) expected.at(i) = 1;
      EXPECT_EQ(random_subset(key, n, count), expected) << count << " of " << n;
    }
  }
  EXPECT_THROW(random_subset({}, 3, 4), std::logic_error);
  EXPECT_THROW(random_subset({}, 3, -1), std::logic_error);
}

}  // namespace
}  // namespace fedhpc
