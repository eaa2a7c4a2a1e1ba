#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "fedhpc/codecs/codec.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/core/rng.hpp"

// Compressors of changes: what their papers say of them.
namespace fedhpc {
namespace {

/// Normals [n] of uneven lengths.
Tensor change(std::int64_t n, std::uint64_t round = 1) {
  Draws draws({.seed = 3, .purpose = Purpose::Codec, .round = round});
  Tensor x = at::empty({n}, at::kDouble);
  for (std::int64_t i = 0; i < n; ++i) {
    x.data_ptr<double>()[i] = draws.normal() * std::exp(draws.normal());
  }
  return x;
}

double squared(const Tensor& x) { return x.square().sum().item<double>(); }

/// What arrives of x with these draws.
Tensor arrived(const Codec& codec, const Tensor& x, std::uint64_t seed,
               const std::optional<ColumnRanges>& tensors = {},
               const std::vector<std::int64_t>& heights = {}) {
  const Tensor row = x.clone().unsqueeze(0);
  codec.fitted({.tensors = tensors, .heights = heights, .seed = seed})->transmit_(row);
  return row[0];
}

constexpr std::int64_t kColumns = 200;

/// omega of x's 200 columns, by the papers.
double omega(const std::string& codec) {
  const double n = kColumns;
  if (codec == "rand_k") return n / 20 - 1;
  if (codec == "qsgd") return std::min(n / 49, std::sqrt(n) / 7);
  if (codec == "terngrad") return (1 + std::sqrt(n)) / 2;
  if (codec == "int8") return n / (4 * 127 * 127);
  if (codec == "int4") return n / (4 * 7 * 7);
  if (codec == "natural") return 0.125;
  throw Error(codec);
}

std::unique_ptr<Codec> make(const std::string& name, ErrorFeedback feedback = ErrorFeedback::None) {
  return CodecChoice{.name = name, .fraction = 0.1, .levels = 7, .feedback = feedback}.make();
}

const std::vector<std::string> kUnbiased{"rand_k", "qsgd", "terngrad", "int8", "int4", "natural"};

TEST(ChangeCodecs, AreRightInExpectation) {
  // || mean of R draws - x ||^2 is omega ||x||^2 / R in expectation at most, and 25 times that with
  // a probability of 1/25 (Markov).
  const Tensor x = change(kColumns);
  constexpr int kDraws = 4000;
  for (const std::string& name : kUnbiased) {
    const std::unique_ptr<Codec> codec = make(name);
    Tensor sum = at::zeros_like(x);
    double variance = 0;
    for (int r = 0; r < kDraws; ++r) {
      const Tensor c = arrived(*codec, x, static_cast<std::uint64_t>(r));
      sum += c;
      variance += squared(c - x) / kDraws;
    }
    EXPECT_LT(squared(sum / kDraws - x), 25 * omega(name) * squared(x) / kDraws) << name;
    EXPECT_GT(variance, 0) << name;
    // For any x: five standard errors of the mean are beyond a tenth of the bound here.
    EXPECT_LT(variance, 1.1 * omega(name) * squared(x)) << name;
  }
}

TEST(ChangeCodecs, ContractForErrorFeedback) {
  const Tensor x = change(kColumns);
  for (const std::string& name : kUnbiased) {
    const std::unique_ptr<Codec> codec = make(name, ErrorFeedback::Ef21);
    double error = 0;
    for (int r = 0; r < 2000; ++r) {
      error += squared(arrived(*codec, x, static_cast<std::uint64_t>(r)) - x) / 2000;
    }
    const double bound = omega(name) / (1 + omega(name)) * squared(x);
    EXPECT_LT(error, 1.02 * bound) << name;
    // It is C(x) / (1 + omega).
    const Tensor whole = arrived(*make(name), x, 7) / (1 + omega(name));
    EXPECT_LT(squared(arrived(*codec, x, 7) - whole), 1e-24 * squared(x)) << name;
  }
}

TEST(ChangeCodecs, TopKLosesTheRest) {
  const Tensor x = change(kColumns);
  const Tensor c = arrived(*make("top_k"), x, 0);
  EXPECT_EQ(c.ne(0).sum().item<std::int64_t>(), 20);
  const double least = c.abs().masked_select(c.ne(0)).min().item<double>();
  EXPECT_EQ(x.abs().ge(least).sum().item<std::int64_t>(), 20);
  EXPECT_LE(squared(c - x), (1 - 0.1) * squared(x));
}

TEST(ChangeCodecs, SignsLoseWhatTheirPaperSays) {
  const Tensor x = change(kColumns);
  const double sum = x.abs().sum().item<double>();
  EXPECT_NEAR(squared(arrived(*make("sign"), x, 0) - x), squared(x) - sum * sum / kColumns,
              1e-12 * squared(x));
}

TEST(ChangeCodecs, DriveKeepsTheInnerProduct) {
  for (const std::int64_t n : {1, 2, 3, 64, 200, 4096}) {
    const Tensor x = change(n);
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      const Tensor c = arrived(*make("drive"), x, seed);
      EXPECT_NEAR(c.mul(x).sum().item<double>(), squared(x), 1e-12 * squared(x)) << n;
    }
  }
  // Theorem 2: the error of long blocks is pi/2 - 1 of the square.
  const Tensor x = change(1 << 14);
  EXPECT_NEAR(squared(arrived(*make("drive"), x, 5) - x) / squared(x), std::numbers::pi / 2 - 1,
              0.05);
}

/// What arrives of a matrix by power_sgd.
Tensor low_rank_of(const Tensor& matrix, std::int64_t rank, std::uint64_t seed) {
  const std::unique_ptr<Codec> codec = CodecChoice{.name = "power_sgd", .rank = rank}.make();
  const Tensor row = matrix.reshape({1, -1}).clone();
  const PayloadFit fit{
      .tensors = ColumnRanges{{0, row.size(1)}}, .heights = {matrix.size(0)}, .seed = seed};
  const std::int64_t bytes = codec->fitted(fit)->transmit_(row).front();
  EXPECT_EQ(bytes, rank * (matrix.size(0) + matrix.size(1)) * 8);
  return row.view(matrix.sizes());
}

TEST(ChangeCodecs, PowerSgdProjectsOntoFewDirections) {
  const Tensor x = change(20 * 30).view({20, 30});
  for (const std::int64_t rank : {1, 2, 5}) {
    double error = 0;
    constexpr int kDraws = 400;
    for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
      const Tensor c = low_rank_of(x, rank, seed);
      EXPECT_NEAR(squared(c - x), squared(x) - squared(c), 1e-12 * squared(x)) << "a projection";
      error += squared(c - x) / kDraws;
    }
    EXPECT_LT(error, (1 - static_cast<double>(rank) / 30) * squared(x));
    const Tensor values = at::linalg_svdvals(low_rank_of(x, rank, 1));
    EXPECT_LT(values[rank].item<double>(), 1e-12 * values[0].item<double>()) << "of that rank";
    EXPECT_GT(values[rank - 1].item<double>(), 1e-3 * values[0].item<double>());
  }
}

TEST(ChangeCodecs, PowerSgdSendsMatricesOfItsRankAsTheyAre) {
  const Tensor three = change(20 * 3).view({20, 3}).matmul(change(3 * 30, 2).view({3, 30}));
  for (const std::int64_t rank : {3, 4, 6}) {  // what is left over is no direction
    EXPECT_LT(squared(low_rank_of(three, rank, 4) - three), 1e-20 * squared(three)) << rank;
  }
  EXPECT_TRUE(low_rank_of(at::zeros({20, 30}, at::kDouble), 2, 4).eq(0).all().item<bool>());
}

TEST(ChangeCodecs, OtherColumnsArriveAsTheyAre) {
  const Tensor x = change(60);
  const ColumnRanges tensors{{2, 10}, {12, 48}};
  const std::vector<std::int64_t> heights{1, 6};
  for (const std::string& name : codec_registry().names()) {
    const std::unique_ptr<Codec> codec = make(name);
    if (codec->fitted({}) == nullptr) continue;
    const Tensor c = arrived(*codec, x, 9, tensors, heights);
    for (const auto& [first, last] : ColumnRanges{{0, 2}, {10, 12}, {48, 60}}) {
      EXPECT_TRUE(c.narrow(0, first, last - first).equal(x.narrow(0, first, last - first))) << name;
    }
    EXPECT_FALSE(c.equal(x)) << name;
    // The bytes alone bring it back.
    const std::unique_ptr<Codec> sender =
        codec->fitted({.tensors = tensors, .heights = heights, .seed = 9});
    const std::vector<std::byte> bytes = sender->encode(x);
    EXPECT_EQ(static_cast<std::int64_t>(bytes.size()),
              sender->encoded_bytes(x.unsqueeze(0)).front())
        << name;
    const Tensor decoded = at::zeros_like(x);
    codec->fitted({.tensors = tensors, .heights = heights, .seed = 0})->decode(bytes, decoded);
    EXPECT_TRUE(decoded.equal(c)) << name;
    // With nothing to compress there is nothing else.
    const Tensor same = arrived(*codec, x, 9, ColumnRanges{});
    EXPECT_TRUE(same.equal(x)) << name;
  }
}

TEST(ChangeCodecs, DrawsFollowTheSeed) {
  const Tensor x = change(kColumns);
  for (const std::string name :
       {"rand_k", "qsgd", "terngrad", "int8", "int4", "natural", "drive"}) {
    const std::unique_ptr<Codec> codec = make(name);
    EXPECT_TRUE(arrived(*codec, x, 1).equal(arrived(*codec, x, 1))) << name;
    EXPECT_FALSE(arrived(*codec, x, 1).equal(arrived(*codec, x, 2))) << name;
  }
}

}  // namespace
}  // namespace fedhpc
