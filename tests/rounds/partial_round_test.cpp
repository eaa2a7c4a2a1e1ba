#include "fedhpc/rounds/partial_round.hpp"

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include "fedhpc/core/error.hpp"

namespace fedhpc::testing {
namespace {

PartialRound example() {
  PartialRound round{.evaluated = true, .passes = 3, .done = {4, 1}};
  const Tensor values = at::arange(6, at::kDouble).view({2, 3});
  round.means.push_back({.result = values.to(at::kFloat), .open = nullptr});
  round.means.push_back(
      {.result = {}, .open = std::make_shared<SumContents>(SumContents{.sums = values})});
  SumContents exact;
  exact.addends.push_back({.segments = {0, 1}, .weights = {0.5, 2}, .rows = values});
  round.means.push_back({.result = {}, .open = std::make_shared<SumContents>(exact)});
  round.ledger = Ledger({1, 2, 3, 4, 5, 6});
  round.times = {.clients = {0.25}, .edges = {1, 2}, .slowest = {}, .edge_round_open = true};
  round.statistics.push_back({.loss = 1.5, .samples = 7, .gradient_values = 9});
  round.notes = {{"a", {1, 2}}, {"b", {}}};
  return round;
}

TEST(PartialRound, ComesBackAsItWas) {
  const PartialRound expected = example();
  const PartialRound actual = unpack(pack(expected));
  EXPECT_TRUE(actual.evaluated);
  EXPECT_EQ(actual.passes, expected.passes);
  EXPECT_EQ(actual.done, expected.done);
  ASSERT_EQ(actual.means.size(), 3);
  EXPECT_TRUE(actual.means[0].result.equal(expected.means[0].result));
  EXPECT_TRUE(actual.means[1].open->sums.equal(expected.means[1].open->sums));
  const SumContents::Addend& addend = actual.means[2].open->addends.at(0);
  EXPECT_EQ(addend.segments, (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(addend.weights, (std::vector<double>{0.5, 2}));
  EXPECT_TRUE(addend.rows.equal(expected.means[2].open->addends[0].rows));
  EXPECT_EQ(actual.ledger.entries(), expected.ledger.entries());
  EXPECT_EQ(actual.times.clients, expected.times.clients);
  EXPECT_EQ(actual.times.edges, expected.times.edges);
  EXPECT_TRUE(actual.times.slowest.empty());
  EXPECT_TRUE(actual.times.edge_round_open);
  ASSERT_EQ(actual.statistics.size(), 1);
  EXPECT_EQ(double{actual.statistics[0].loss}, 1.5);
  EXPECT_EQ(actual.statistics[0].samples, 7);
  EXPECT_EQ(actual.statistics[0].gradient_values, 9);
  EXPECT_EQ(actual.notes, expected.notes);
}

TEST(PartialRound, DamagedNumbersAreRefused) {
  const PackedRound whole = pack(example());
  for (std::size_t cut = 0; cut < whole.integers.size(); ++cut) {
    PackedRound damaged = whole;
    damaged.integers.resize(cut);
    EXPECT_THROW(unpack(damaged), DataError) << cut;
    damaged = whole;
    damaged.integers[cut] = std::int64_t{1} << 62;
    try {
      unpack(damaged);  // a number of its own may be as large
    } catch (const DataError&) {
    }
  }
  PackedRound longer = whole;
  longer.numbers.push_back(0);
  EXPECT_THROW(unpack(longer), DataError);
}

}  // namespace
}  // namespace fedhpc::testing
