#include <algorithm>
#include <cmath>
#include <set>

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/rng.hpp"
#include "fedhpc/rounds/cohort.hpp"
#include "fedhpc/rounds/ledger.hpp"
#include "fedhpc/rounds/mean.hpp"
#include "fedhpc/rounds/topology.hpp"

namespace fedhpc {
namespace {

LayoutPtr layout_of(std::int64_t columns) {
  auto layout = std::make_shared<Layout>();
  layout->add("w", {columns}, columns, Tag::Trainable);
  return layout;
}

TEST(Mean, WeighsRowsOfAllRanks) {
  const auto world = world_communicator(60);
  const LayoutPtr layout = layout_of(3000);  // several tiles
  Stopwatch watch;
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    Mean mean(*world, layout, type, watch);
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

TEST(Mean, OfNothingIsZero) {
  const auto world = world_communicator(60);
  const LayoutPtr layout = layout_of(4);
  Stopwatch watch;
  Mean mean(*world, layout, at::kFloat, watch);
  // A client without samples weighs nothing, whatever its row holds.
  const std::vector<double> weights{0};
  mean.add(weights, {at::full({1, 4}, std::nan(""), at::kFloat), layout});
  EXPECT_TRUE(mean.reduce().values.equal(at::zeros({1, 4})));
}

TEST(Mean, RefusesRowsOfAnotherLayout) {
  const auto world = world_communicator(60);
  Stopwatch watch;
  Mean mean(*world, layout_of(4), at::kFloat, watch);
  const std::vector<double> weights{1};
  EXPECT_THROW(mean.add(weights, {at::zeros({1, 4}), layout_of(4)}), std::logic_error);
}

TEST(Topology, GivesEveryClientOneRank) {
  for (const std::int64_t clients : {1, 5, 20, 1000}) {
    for (const int ranks : {1, 3, 4, 7}) {
      std::int64_t next = 0;
      std::int64_t smallest = clients;
      std::int64_t largest = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Range range = part_of(clients, rank, ranks);
        EXPECT_EQ(range.first, next);
        next = range.last;
        smallest = std::min(smallest, range.size());
        largest = std::max(largest, range.size());
      }
      EXPECT_EQ(next, clients);
      EXPECT_LE(largest - smallest, 1);
    }
  }
}

TEST(Topology, PutsClientsOnEdges) {
  // floor(c E / N)
  EXPECT_EQ(edges_of_clients(7, 3, {}), (std::vector<std::int32_t>{0, 0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(edges_of_clients(3, 0, {}), (std::vector<std::int32_t>{-1, -1, -1}));
  EXPECT_EQ(edges_of_clients(3, 2, {1, 0, 1}), (std::vector<std::int32_t>{1, 0, 1}));
  EXPECT_THROW(edges_of_clients(3, 4, {}), ConfigError);
  EXPECT_THROW(edges_of_clients(3, 2, {1, 2, 0}), ConfigError);
}

TEST(Topology, RoundsTheCohortsSize) {
  EXPECT_EQ(cohort_size(20, 1), 20);
  EXPECT_EQ(cohort_size(7, 0.5), 4);  // floor(3.5 + 1/2)
  EXPECT_EQ(cohort_size(10, 0.24), 2);
  EXPECT_EQ(cohort_size(10, 0.25), 3);
  EXPECT_EQ(cohort_size(10, 0.001), 1);
}

TEST(Topology, DrawsCohortsWithoutReplacement) {
  std::set<std::vector<std::int64_t>> seen;
  std::vector<int> times(10, 0);
  for (std::int64_t round = 1; round <= 400; ++round) {
    const std::vector<std::int64_t> cohort = draw_cohort(9, round, 10, 0.3).clients;
    ASSERT_EQ(cohort.size(), 3U);
    EXPECT_TRUE(std::is_sorted(cohort.begin(), cohort.end()));
    EXPECT_EQ(std::set<std::int64_t>(cohort.begin(), cohort.end()).size(), 3U);
    for (const std::int64_t client : cohort) ++times[static_cast<std::size_t>(client)];
    seen.insert(cohort);
  }
  EXPECT_GT(seen.size(), 80U);                                // of 120 possible ones
  for (const int count : times) EXPECT_NEAR(count, 120, 40);  // over 4 standard deviations
  EXPECT_EQ(draw_cohort(9, 5, 10, 0.3).clients, draw_cohort(9, 5, 10, 0.3).clients);
  // The first S of the permutation with client = 0.
  std::vector<std::int64_t> expected =
      permutation_prefix({.seed = 9, .purpose = Purpose::Cohort, .round = 5}, 10, 3);
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(draw_cohort(9, 5, 10, 0.3).clients, expected);
}

TEST(Ledger, KeepsLinksAndDirectionsApart) {
  Ledger ledger;
  std::int64_t bytes = 1;
  for (const Link link : {Link::ClientEdge, Link::EdgeCloud, Link::ClientCloud}) {
    for (const Direction direction : {Direction::Up, Direction::Down}) {
      ledger.book(link, direction, bytes);
      ledger.book(link, direction, bytes);
      bytes *= 10;
    }
  }
  EXPECT_EQ(ledger.booked(Link::ClientEdge, Direction::Up), 2);
  EXPECT_EQ(ledger.booked(Link::ClientEdge, Direction::Down), 20);
  EXPECT_EQ(ledger.booked(Link::EdgeCloud, Direction::Up), 200);
  EXPECT_EQ(ledger.booked(Link::ClientCloud, Direction::Down), 200000);
  EXPECT_THROW(ledger.book(Link::ClientEdge, Direction::Up, -1), std::logic_error);
  ledger.clear();
  EXPECT_EQ(ledger.booked(Link::ClientCloud, Direction::Down), 0);
}

}  // namespace
}  // namespace fedhpc
