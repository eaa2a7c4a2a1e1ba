#include "fedhpc/rounds/round_plan.hpp"

#include <cmath>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "fedhpc/core/rng.hpp"
#include "fedhpc/rounds/cohort.hpp"

namespace fedhpc {
namespace {

/// Work of clients, equal or log-normal with sigma 1.
std::vector<double> sizes(std::int64_t clients, bool equal) {
  Draws draws({.seed = 11, .purpose = Purpose::Generator});
  std::vector<double> work(static_cast<std::size_t>(clients), 100);
  if (equal) return work;
  for (double& one : work) one = 100 * std::exp(draws.normal());
  return work;
}

RoundCosts costs_of(const std::vector<double>& work, double of_moving = 0) {
  return {.work = [&work](std::int64_t client) { return work[static_cast<std::size_t>(client)]; },
          .of_moving = [of_moving](const Move&) { return of_moving; }};
}

Placement placed(std::int64_t clients, std::int64_t edges, int ranks) {
  return {edges_of_clients(clients, edges, {}), edges, ranks};
}

struct Case {
  std::int64_t clients;
  double participation;
  int ranks;
  bool equal;
  double at_home;  // balance, mean over rounds
  double planned;
};

TEST(RoundPlan, EvensOutTheRanksWork) {
  for (const auto& [clients, participation, ranks, equal, at_home, planned] :
       {Case{100, .1, 4, true, .66, .83}, Case{100, .1, 4, false, .6, .75},
        Case{100, .2, 8, true, .6, .83}, Case{100, .2, 8, false, .5, .6},
        Case{1000, .1, 16, true, .63, .89}, Case{1000, .1, 16, false, .55, .75}}) {
    const Placement placement = placed(clients, 0, ranks);
    const std::vector<double> work = sizes(clients, equal);
    const RoundCosts costs = costs_of(work);
    double home = 0;
    double balanced = 0;
    constexpr int kRounds = 200;
    for (int t = 1; t <= kRounds; ++t) {
      const auto cohort = draw_cohort(3, t, clients, participation).clients;
      const auto moves = plan_round(cohort, placement, MovingRange::Everywhere, costs);
      home += balance_of(work_of_ranks(cohort, placement, {}, costs)) / kRounds;
      balanced += balance_of(work_of_ranks(cohort, placement, moves, costs)) / kRounds;
    }
    EXPECT_LT(home, at_home) << clients << " on " << ranks;
    EXPECT_GT(balanced, planned) << clients << " on " << ranks << (equal ? ", equal" : "");
  }
}

TEST(RoundPlan, MovesParticipantsFromTheirHomesAndNobodyElse) {
  const std::vector<double> work = sizes(60, false);
  for (const std::int64_t edges : {0, 2, 3}) {
    const Placement placement = placed(60, edges, 6);
    std::size_t moved = 0;
    for (int t = 1; t <= 50; ++t) {
      const auto cohort = draw_cohort(5, t, 60, 0.3).clients;
      const auto moves = plan_round(cohort, placement, MovingRange::WithinEdges, costs_of(work));
      EXPECT_EQ(plan_round(cohort, placement, MovingRange::WithinEdges, costs_of(work)), moves);
      std::set<std::int64_t> once;
      for (const Move& move : moves) {
        EXPECT_TRUE(std::ranges::binary_search(cohort, move.client));
        EXPECT_EQ(move.from, placement.home_of(move.client));
        EXPECT_NE(move.to, move.from);
        EXPECT_TRUE(once.insert(move.client).second);
        if (edges > 0) {
          EXPECT_TRUE(placement.ranks_of_edge(placement.edge_of(move.client)).holds(move.to));
        }
      }
      moved += moves.size();
    }
    EXPECT_GT(moved, 50U);
  }
}

TEST(RoundPlan, NobodyMovesForNothing) {
  const std::vector<double> equal(24, 100);
  std::vector<std::int64_t> all(24);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_TRUE(plan_round(all, placed(24, 0, 4), MovingRange::Everywhere, costs_of(equal)).empty());
  // A large one is as long as the round wherever it is trained.
  std::vector<double> one_large(24, 1);
  one_large[3] = 1000;
  EXPECT_TRUE(
      plan_round(all, placed(24, 0, 4), MovingRange::Everywhere, costs_of(one_large)).empty());
  // Six clients of one rank: two stay, four go; with two ranks a half.
  const std::vector<std::int64_t> of_one{0, 1, 2, 3, 4, 5};
  const auto moves = plan_round(of_one, placed(24, 0, 3), MovingRange::Everywhere, costs_of(equal));
  EXPECT_EQ(moves.size(), 4U);
  EXPECT_TRUE(
      plan_round(of_one, placed(24, 3, 3), MovingRange::WithinEdges, costs_of(equal)).empty())
      << "a rank of an edge of its own";
}

TEST(RoundPlan, WhatCostsMoreThanItSavesStays) {
  const std::vector<double> equal(24, 100);
  const std::vector<std::int64_t> of_one{0, 1, 2, 3, 4, 5};
  const auto planned = [&](double cost) {
    return plan_round(of_one, placed(24, 0, 3), MovingRange::Everywhere, costs_of(equal, cost))
        .size();
  };
  EXPECT_EQ(planned(5), 4U);
  EXPECT_EQ(planned(1000), 0U);
}

TEST(RoundPlan, BalanceIsMeanOverMaximum) {
  EXPECT_EQ(balance_of(std::vector<double>{2, 4, 0}), 0.5);
  EXPECT_EQ(balance_of(std::vector<double>{0, 0}), 1);
}

}  // namespace
}  // namespace fedhpc
