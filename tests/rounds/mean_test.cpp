#include "fedhpc/rounds/mean.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/core/IListRef.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"
#include "fedhpc/rounds/topology.hpp"

namespace fedhpc {
namespace {

LayoutPtr layout_of(std::int64_t columns) {
  auto layout = std::make_shared<Layout>();
  layout->add("w", {columns}, columns, Tag::Trainable);
  return layout;
}

/// What a mean of `type` over a layout needs, on all ranks; one client per edge, two without.
struct MeanTest : ::testing::TestWithParam<Summation> {
  MeanServices services(const LayoutPtr& layout, at::ScalarType type, std::int64_t edges = 0) {
    const std::int64_t clients = std::max<std::int64_t>(edges, 2);
    topology = std::make_unique<Topology>(
        *world, Placement(edges_of_clients(clients, edges, {}), edges, world->size()));
    return {*topology, layout, {.type = type, .summation = GetParam()}, watch};
  }

  std::unique_ptr<Communicator> world = world_communicator(60);
  std::unique_ptr<Topology> topology;
  Stopwatch watch;
};

TEST_P(MeanTest, WeighsRowsOfAllRanks) {
  const LayoutPtr layout = layout_of(3000);  // several tiles
  for (const std::int64_t edges : {0, 1, 3}) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      Mean mean(services(layout, type, edges));
      // Rank r adds rows of value r with weight 1 and 10 r with weight 3, in two blocks.
      const double r = world->rank();
      const std::vector<double> weights{1, 3};
      Tensor rows = at::zeros({2, 3000}, type);
      rows[0].fill_(r);
      rows[1].fill_(10 * r);
      mean.add(weights, {rows, layout});
      mean.add(weights, {rows, layout});
      const double expected = 31.0 / 4 * (world->size() - 1) / 2;
      const Rows result = mean.reduce();
      EXPECT_TRUE(result.values.equal(at::full({1, 3000}, expected, type)));
    }
  }
}

TEST_P(MeanTest, OfNothingIsZero) {
  const LayoutPtr layout = layout_of(4);
  Mean mean(services(layout, at::kFloat));
  // A client without samples weighs nothing, whatever its row holds.
  const std::vector<double> weights{0};
  mean.add(weights, {at::full({1, 4}, std::nan(""), at::kFloat), layout});
  EXPECT_TRUE(mean.reduce().values.equal(at::zeros({1, 4})));
}

TEST_P(MeanTest, RefusesRowsOfAnotherLayout) {
  Mean mean(services(layout_of(4), at::kFloat));
  const std::vector<double> weights{1};
  EXPECT_THROW(mean.add(weights, {at::zeros({1, 4}), layout_of(4)}), std::logic_error);
  ColumnMean by_column(services(layout_of(4), at::kFloat));
  EXPECT_THROW(
      by_column.add(weights, {at::zeros({1, 4}), layout_of(4)}, at::ones({1, 4}, at::kBool)),
      std::logic_error);
}

TEST_P(MeanTest, ByColumnCountsThoseThatSentIt) {
  constexpr std::int64_t kColumns = 3000;  // several tiles
  const LayoutPtr layout = layout_of(kColumns);
  // Everybody's first client sends columns 0 and 1 of every four, the second one of even ranks
  // column 1, of odd ranks 1 and 2; nobody sends column 3.
  const auto sends = [](std::int64_t rank, std::int64_t client, std::int64_t i) {
    if (client == 0) return i % 4 <= 1;
    return i % 4 == 1 || (i % 4 == 2 && rank % 2 == 1);
  };
  const auto value = [](std::int64_t rank, std::int64_t client, std::int64_t i) {
    return static_cast<double>((rank + 1) * (i % 7) - 10 * client);
  };
  const std::vector<double> weights{1, 3};
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    ColumnMean mean(services(layout, type));
    Tensor rows = at::zeros({2, kColumns}, at::kDouble);
    Tensor sent = at::zeros({2, kColumns}, at::kBool);
    Tensor expected = at::full({1, kColumns}, 0.25, at::kDouble);
    for (std::int64_t i = 0; i < kColumns; ++i) {
      double sum = 0;
      double weight = 0;
      for (std::int64_t client = 0; client < 2; ++client) {
        rows.data_ptr<double>()[client * kColumns + i] = value(world->rank(), client, i);
        sent.data_ptr<bool>()[client * kColumns + i] = sends(world->rank(), client, i);
        for (std::int64_t rank = 0; rank < world->size(); ++rank) {
          if (!sends(rank, client, i)) continue;
          sum += weights[static_cast<std::size_t>(client)] * value(rank, client, i);
          weight += weights[static_cast<std::size_t>(client)];
        }
      }
      if (weight > 0) expected.data_ptr<double>()[i] = sum / weight;
    }
    // In two blocks, which count twice.
    mean.add(weights, {rows.to(type), layout}, sent);
    mean.add(weights, {rows.to(type), layout}, sent);
    const Rows result = mean.reduce({at::full({1, kColumns}, 0.25, type), layout});
    EXPECT_EQ(result.layout, layout);
    EXPECT_TRUE(result.values.equal(expected.to(type)));
  }
}

TEST_P(MeanTest, IsReducedOnce) {
  const LayoutPtr layout = layout_of(4);
  const Rows rows{at::ones({1, 4}, at::kDouble), layout};
  Mean mean(services(layout, at::kDouble));
  mean.add(std::vector<double>{2}, rows);
  EXPECT_TRUE(mean.reduce().values.equal(rows.values));
  EXPECT_THROW(mean.reduce(), std::logic_error);
  EXPECT_THROW(mean.add(std::vector<double>{2}, rows), std::logic_error);
}

TEST_P(MeanTest, ByColumnOfEverythingIsTheMean) {
  const LayoutPtr layout = layout_of(5);
  const std::vector<double> weights{2, 5, 0};
  const Tensor rows = at::arange(15, at::kDouble).reshape({3, 5}).add(world->rank());
  ColumnMean by_column(services(layout, at::kDouble));
  by_column.add(weights, {rows, layout}, at::ones({3, 5}, at::kBool));
  const Rows result = by_column.reduce({at::zeros({1, 5}, at::kDouble), layout});
  Mean mean(services(layout, at::kDouble));
  mean.add(weights, {rows, layout});
  EXPECT_TRUE(result.values.equal(mean.reduce().values));
}

TEST_P(MeanTest, ByColumnOfNothingIsSomethingElse) {
  const LayoutPtr layout = layout_of(4);
  const Rows otherwise{at::arange(4, at::kFloat).reshape({1, 4}), layout};
  ColumnMean of_nobody(services(layout, at::kFloat));
  EXPECT_TRUE(of_nobody.reduce(otherwise).values.equal(otherwise.values));
  // A client without samples weighs nothing, whatever its row holds.
  ColumnMean of_nothing(services(layout, at::kFloat));
  const std::vector<double> weights{0};
  of_nothing.add(weights, {at::full({1, 4}, std::nan(""), at::kFloat), layout},
                 at::ones({1, 4}, at::kBool));
  EXPECT_TRUE(of_nothing.reduce(otherwise).values.equal(otherwise.values));
}

TEST_P(MeanTest, ByColumnDoesNotReadWhatWasNotSent) {
  const LayoutPtr layout = layout_of(3);
  ColumnMean mean(services(layout, at::kFloat));
  const std::vector<double> weights{1};
  const float infinity = std::numeric_limits<float>::infinity();
  mean.add(weights, {at::tensor({2.0F, std::nanf(""), infinity}).reshape({1, 3}), layout},
           at::tensor({1, 0, 0}).reshape({1, 3}).to(at::kBool));
  const Rows result = mean.reduce({at::full({1, 3}, 7.0F, at::kFloat), layout});
  EXPECT_TRUE(result.values.equal(at::tensor({2.0F, 7.0F, 7.0F}).reshape({1, 3})));
}

TEST_P(MeanTest, ByColumnKeepsSmallAndLargeNumbersBesideWeights) {
  const LayoutPtr layout = layout_of(6);
  const std::vector<double> weights{600, 300};
  for (const double size : {1e-12, 1.0, 1e15}) {
    const Tensor row = at::arange(1, 7, at::kDouble).mul(size / 7).reshape({1, 6});
    ColumnMean mean(services(layout, at::kDouble));
    mean.add(weights, {at::cat({row, row.mul(2)}), layout}, at::ones({2, 6}, at::kBool));
    const Rows result = mean.reduce({at::zeros({1, 6}, at::kDouble), layout});
    const double error = result.values.sub(row.mul(4.0 / 3)).norm().item<double>();
    EXPECT_LT(error, 1e-11 * row.norm().item<double>()) << size;
  }
}

TEST_P(MeanTest, WithinEdgesKeepsEdgesApart) {
  const LayoutPtr layout = layout_of(5);
  constexpr std::int64_t kEdges = 7;
  EdgeMean mean(services(layout, at::kDouble, kEdges));
  // Every rank of edge e adds e with weight 1 and 2 e with weight 1; edge 3 gets nothing.
  const Range mine = topology->edges();
  for (std::int64_t edge = mine.first; edge < mine.last; ++edge) {
    if (edge == 3) continue;
    const std::vector<std::int64_t> edges{edge, edge};
    const std::vector<double> weights{1, 1};
    Tensor rows = at::full({2, 5}, static_cast<double>(edge), at::kDouble);
    rows[1].mul_(2);
    mean.add(edges, weights, {rows, layout});
  }
  const EdgeRows result = mean.reduce();
  ASSERT_EQ(result.first, mine.first);
  ASSERT_EQ(result.count(), mine.size());
  for (std::int64_t i = 0; i < result.count(); ++i) {
    const double expected = mine.first + i == 3 ? 0 : 1.5 * static_cast<double>(mine.first + i);
    EXPECT_TRUE(result.rows.values[i].equal(at::full({5}, expected, at::kDouble)));
  }
}

INSTANTIATE_TEST_SUITE_P(Summations, MeanTest,
                         ::testing::Values(Summation::Fast, Summation::Reproducible),
                         [](const auto& one) {
                           return std::string(one.param == Summation::Fast ? "Fast"
                                                                           : "Reproducible");
                         });

}  // namespace
}  // namespace fedhpc
