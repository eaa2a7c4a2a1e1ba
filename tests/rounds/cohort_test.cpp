#include "fedhpc/rounds/cohort.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "fedhpc/core/rng.hpp"

namespace fedhpc {
namespace {

TEST(Cohort, RoundsTheCohortsSize) {
  EXPECT_EQ(cohort_size(20, 1), 20);
  EXPECT_EQ(cohort_size(7, 0.5), 4);  // floor(3.5 + 1/2)
  EXPECT_EQ(cohort_size(10, 0.24), 2);
  EXPECT_EQ(cohort_size(10, 0.25), 3);
  EXPECT_EQ(cohort_size(10, 0.001), 1);
}

TEST(Cohort, DrawsCohortsWithoutReplacement) {
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

TEST(Cohort, DrawsEachClientByItself) {
  constexpr std::int64_t kRounds = 4000;
  std::map<std::size_t, int> sizes;
  std::vector<int> times(10, 0);
  int both = 0;
  for (std::int64_t round = 1; round <= kRounds; ++round) {
    const std::vector<std::int64_t> cohort = draw_each(9, round, 10, 0.3).clients;
    EXPECT_TRUE(std::is_sorted(cohort.begin(), cohort.end()));
    ++sizes[cohort.size()];
    for (const std::int64_t client : cohort) ++times[static_cast<std::size_t>(client)];
    const std::set<std::int64_t> there(cohort.begin(), cohort.end());
    if (there.contains(3) && there.contains(7)) ++both;
  }
  // Binomial: 0.7^10 of the rounds have nobody, 0.0015 eight or more; within 5 standard deviations.
  EXPECT_NEAR(sizes[0], 0.0282 * kRounds, 52);
  EXPECT_NEAR(sizes[3], 0.2668 * kRounds, 140);
  for (const int count : times) EXPECT_NEAR(count, 0.3 * kRounds, 145);
  EXPECT_NEAR(both, 0.09 * kRounds, 90);
  EXPECT_EQ(draw_each(9, 5, 10, 0.3).clients, draw_each(9, 5, 10, 0.3).clients);
  EXPECT_NE(draw_each(9, 5, 1000, 0.3).clients, draw_each(8, 5, 1000, 0.3).clients);
}

TEST(Cohort, OfEachByItselfHasALimit) {
  EXPECT_EQ(draw_each_limit(10, 0.3), 10);
  EXPECT_EQ(draw_each_limit(10000, 0.01), 100 + 80 + 16);
  EXPECT_EQ(draw_each_limit(10000, 1e-9), 1 + 8 + 16);
}

TEST(Cohort, SomebodyWithSamplesStandsInForNobody) {
  const auto some = [](std::int64_t client) { return client % 2 == 1; };
  const auto stands_in = [&](std::vector<std::int64_t> clients) {
    return with_stand_in({.clients = std::move(clients), .edges = {}}, 9, 5, 10, some);
  };
  const Cohort one = stands_in({});
  ASSERT_EQ(one.clients.size(), 1U);
  EXPECT_TRUE(one.stands_in && some(one.clients.front()));
  const Cohort beside = stands_in({0, 4});
  EXPECT_EQ(beside.clients.size(), 3U);
  EXPECT_TRUE(beside.stands_in && std::is_sorted(beside.clients.begin(), beside.clients.end()));
  EXPECT_EQ(std::count(beside.clients.begin(), beside.clients.end(), one.clients.front()), 1);
  EXPECT_EQ(stands_in({0, 3}).clients, (std::vector<std::int64_t>{0, 3}));
  EXPECT_FALSE(stands_in({0, 3}).stands_in);
  EXPECT_TRUE(with_stand_in({}, 9, 5, 10, [](std::int64_t) { return false; }).clients.empty());
}

Placement placed(std::int64_t clients, std::int64_t edges) {
  return {edges_of_clients(clients, edges, {}), edges, 1};
}

TEST(Cohort, OfASingleEdgeIsThatOfAMethodWithoutEdges) {
  TopologyOptions options;
  options.edges = 1;
  options.participation = 0.3;
  for (std::int64_t round = 1; round < 20; ++round) {
    const Cohort cohort = draw_hierarchical_cohort(9, round, placed(10, 1), options);
    EXPECT_EQ(cohort.clients, draw_cohort(9, round, 10, 0.3).clients);
    EXPECT_EQ(cohort.edges, (std::vector<std::int64_t>{0}));
  }
}

TEST(Cohort, DrawsEdgesAndThenTheirClients) {
  TopologyOptions options;
  options.edges = 4;
  options.participation = 0.5;
  options.edge_participation = 0.5;
  const Placement placement = placed(22, 4);  // edges of 6, 5, 6 and 5 clients
  std::map<std::int64_t, int> times;
  for (std::int64_t round = 1; round <= 200; ++round) {
    const Cohort cohort = draw_hierarchical_cohort(3, round, placement, options);
    ASSERT_EQ(cohort.edges.size(), 2U);
    EXPECT_LT(cohort.edges[0], cohort.edges[1]);
    EXPECT_TRUE(std::is_sorted(cohort.clients.begin(), cohort.clients.end()));
    for (const std::int64_t edge : cohort.edges) {
      ++times[edge];
      std::int64_t members = 0;
      for (const std::int64_t client : cohort.clients) members += placement.edge_of(client) == edge;
      EXPECT_EQ(members, 3) << "floor(5 / 2 + 1/2) and 6 / 2";
    }
    EXPECT_EQ(cohort.clients.size(), 6U) << "nobody of the other edges";
  }
  for (const auto& [edge, count] : times) EXPECT_NEAR(count, 100, 30) << "edge " << edge;
  EXPECT_EQ(hierarchical_cohort_limit(placement, options), 6);
  options.participation = 1;
  EXPECT_EQ(hierarchical_cohort_limit(placement, options), 12);
}

TEST(Cohort, KeepsOneAtEveryEdgeOfThoseWhoStayAway) {
  TrainOptions training;
  training.stragglers = {0.7};
  training.straggler_work = StragglerWork::None;
  const Stragglers stragglers(training, 3);
  const Placement placement = placed(12, 4);
  const Cohort all{.clients = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, .edges = {0, 1, 2, 3}};
  std::int64_t left = 0;
  for (std::int64_t round = 1; round <= 50; ++round) {
    const Cohort here = without_absent(all, round, stragglers, placement);
    EXPECT_EQ(here.edges, all.edges);
    EXPECT_TRUE(std::is_sorted(here.clients.begin(), here.clients.end()));
    std::map<std::int64_t, int> of_edge;
    for (const std::int64_t client : here.clients) ++of_edge[placement.edge_of(client)];
    EXPECT_EQ(of_edge.size(), 4U) << "round " << round;
    left += std::ssize(here.clients);
    // Without edge models one of all clients is enough.
    const Cohort of_cloud =
        without_absent({.clients = all.clients, .edges = {}}, round, stragglers, placement);
    EXPECT_EQ(of_cloud.clients, stragglers.on_time(all.clients, round));
    EXPECT_LE(of_cloud.clients.size(), here.clients.size());
  }
  EXPECT_LT(left, 50 * 12 / 2);
}

TEST(Cohort, DrawsForEdgeRoundsBySamples) {
  const Placement placement = placed(8, 2);
  const std::vector<double> samples{1, 0, 3, 4, 5, 0, 0, 0};
  const Cohort drawn{.clients = {0, 4, 5}, .edges = {0, 1}};  // one of edge 0, two of edge 1
  std::map<std::int64_t, int> times;
  for (std::uint64_t round = 1; round <= 800; ++round) {
    const std::vector<std::int64_t> clients = draw_by_samples(
        {.seed = 3, .purpose = Purpose::Cohort, .pass = kFirstEdgeRoundPass, .round = round}, drawn,
        placement, [&](std::int64_t c) { return samples[static_cast<std::size_t>(c)]; });
    ASSERT_EQ(clients.size(), 2U) << "edge 1 has a single client with samples";
    EXPECT_EQ(clients[1], 4);
    ++times[clients[0]];
  }
  EXPECT_EQ(times.size(), 3U);
  EXPECT_NEAR(times[0], 100, 40);
  EXPECT_NEAR(times[2], 300, 60);
  EXPECT_NEAR(times[3], 400, 60);
}

}  // namespace
}  // namespace fedhpc
