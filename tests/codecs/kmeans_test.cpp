#include "codecs/kmeans.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "fedhpc/core/rng.hpp"

namespace fedhpc {
namespace {

Draws draws_of(std::uint64_t test) {
  return Draws({.seed = 9, .purpose = Purpose::Codec, .round = test});
}

/// n log2 n - sum_s f_s log2 f_s: n times the entropy of symbols with these counts, in bits.
double entropy_bits(const std::vector<std::int64_t>& counts) {
  double n = 0;
  double bits = 0;
  for (const std::int64_t count : counts) {
    n += static_cast<double>(count);
    bits -= static_cast<double>(count) * std::log2(static_cast<double>(count));
  }
  return bits + n * std::log2(n);
}

std::vector<std::int64_t> counts_of(const std::vector<std::int32_t>& symbols, std::int64_t kinds) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(kinds), 0);
  for (const std::int32_t symbol : symbols) ++counts[symbol];
  return counts;
}

TEST(SymbolCoder, ComesBackFromBytesNearTheEntropy) {
  Draws draws = draws_of(1);
  for (const std::int64_t n : {1, 2, 3, 10, 255, 256, 5000, 200000}) {
    for (const std::int64_t kinds : {1, 2, 3, 16, 300}) {
      if (kinds > n) continue;
      for (const double skew : {0.0, 1.0, 6.0}) {
        std::vector<std::int32_t> symbols;
        for (std::int64_t i = 0; i < n; ++i) {
          const double place = std::pow(draws.uniform(), 1 + skew);
          symbols.push_back(static_cast<std::int32_t>(
              i < kinds ? i : static_cast<std::int64_t>(place * static_cast<double>(kinds))));
        }
        const std::vector<std::int64_t> counts = counts_of(symbols, kinds);
        const SymbolCoder coder(counts);
        BitWriter writer;
        coder.encode(symbols, writer);
        const std::vector<std::byte> bytes = writer.take();
        EXPECT_EQ(coder.encoded_bytes(symbols), static_cast<std::int64_t>(bytes.size()));
        const double bits = 8 * static_cast<double>(bytes.size());
        EXPECT_LE(bits, entropy_bits(counts) + std::log2(static_cast<double>(n)) + 9)
            << n << " of " << kinds;
        if (kinds == 1) {
          EXPECT_TRUE(bytes.empty());
        }
        BitReader reader(bytes, "test", static_cast<std::size_t>(n));
        ASSERT_EQ(coder.decode(reader), symbols) << n << " of " << kinds;
        reader.finish();
      }
    }
  }
}

TEST(SymbolCoder, EverySequenceHasBytesOfItsOwn) {
  // All 4!/(2! 1! 1!) orders of 0 0 1 2.
  std::vector<std::int32_t> symbols{0, 0, 1, 2};
  const SymbolCoder coder(std::vector<std::int64_t>{2, 1, 1});
  std::set<std::vector<int>> seen;
  do {
    BitWriter writer;
    coder.encode(symbols, writer);
    std::vector<int> bytes;
    for (const std::byte byte : writer.take()) bytes.push_back(static_cast<int>(byte));
    seen.insert(bytes);
  } while (std::next_permutation(symbols.begin(), symbols.end()));
  EXPECT_EQ(seen.size(), 12U);
}

template <typename T>
std::int64_t bytes_of(const std::vector<T>& row, std::int64_t k) {
  return KMeans{k}.encoded_bytes(std::span<const T>(row));
}

/// What the similarity-network paper counts, w k + n ceil(log2 k) bits, and the counts: k of
/// ceil(log2(n + 1)) bits, both filled up to bytes.
template <typename T>
std::int64_t paper_bytes(std::int64_t n, std::int64_t k) {
  const std::int64_t counts = bytes_for(k * bits_for(n + 1));
  return k * static_cast<std::int64_t>(sizeof(T)) + bytes_for(n * bits_for(k)) + counts;
}

TEST(KMeansCodec, CostsNoMoreThanThePaperCounts) {
  Draws draws = draws_of(2);
  for (const std::int64_t n : {1, 2, 5, 55, 1000, 79510}) {
    for (const std::int64_t k : {1, 2, 3, 4, 5, 16, 17, 64}) {
      std::vector<float> row;
      for (std::int64_t i = 0; i < n; ++i) row.push_back(static_cast<float>(draws.normal()));
      EXPECT_LE(bytes_of(row, k), paper_bytes<float>(n, k) + 1) << n << ", " << k;
      EXPECT_LE(bytes_of(std::vector<double>(row.begin(), row.end()), k),
                paper_bytes<double>(n, k) + 1)
          << n << ", " << k;
      // The worst there is: k values equally often, in any order.
      for (std::int64_t i = 0; i < n; ++i) row[i] = static_cast<float>(draws.below(k));
      EXPECT_LE(bytes_of(row, k), paper_bytes<float>(n, k) + 1) << n << ", " << k;
    }
  }
}

TEST(KMeansCodec, SkewedRowsComeNearTheEntropy) {
  Draws draws = draws_of(3);
  constexpr std::int64_t kNumbers = 50000;
  for (const double share : {0.5, 0.1, 0.01, 0.001}) {
    std::vector<float> row;
    for (std::int64_t i = 0; i < kNumbers; ++i) {
      row.push_back(draws.uniform() < share ? static_cast<float>(draws.normal()) : 0.0F);
    }
    const Clusters<float> clusters = kmeans(std::span<const float>(row), 16);
    const double entropy = entropy_bits(clusters.counts) / 8;
    const auto bytes = static_cast<double>(bytes_of(row, 16));
    EXPECT_GE(bytes, entropy);
    EXPECT_LE(bytes, entropy + 16 * 4 + 16 * 2 + 4) << share;
    if (share < 0.05) {
      EXPECT_LT(8 * bytes, 0.5 * kNumbers) << "less than half a bit each";
    }
  }
}

TEST(KMeansCodec, RowsByHand) {
  EXPECT_EQ(bytes_of(std::vector<float>{}, 16), 0);
  EXPECT_EQ(bytes_of(std::vector<float>{3}, 16), 4);
  EXPECT_EQ(bytes_of(std::vector<double>(1000, 3), 1), 8);
  EXPECT_EQ(bytes_of(std::vector<double>(1000, 3), 16), 1 + 8);
  // 3 bits and 2 for the first of the counts fill a byte, and the state 41 another.
  EXPECT_EQ(bytes_of(std::vector<float>{-1.5, 2.5, 2.5, -1.5, 2.5}, 16), 1 + 2 * 4 + 1);
}

TEST(KMeansCodec, ValuesArriveAsTheNearestCentre) {
  Draws draws = draws_of(4);
  for (const std::int64_t k : {1, 4, 16, 40}) {
    std::vector<double> row;
    for (int i = 0; i < 3000; ++i) row.push_back(draws.normal());
    const Clusters<double> clusters = kmeans(std::span<const double>(row), k);
    std::vector<double> received = row;
    const std::int64_t bytes = KMeans{k}.transmit_(std::span<double>(received));
    EXPECT_EQ(bytes, bytes_of(row, k));
    double distortion = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      EXPECT_EQ(received[i], clusters.centres[clusters.assignment[i]]);
      distortion += (row[i] - received[i]) * (row[i] - received[i]);
    }
    EXPECT_NEAR(distortion, clusters.distortion, 1e-9 * distortion);
    EXPECT_EQ(std::set<double>(received.begin(), received.end()).size(),
              static_cast<std::size_t>(k));
  }
}

}  // namespace
}  // namespace fedhpc
