#include <algorithm>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/edge_bytes.hpp"
#include "fixtures/reference_case.hpp"
#include "reference/hierfavg_reference.hpp"

namespace fedhpc::testing {
namespace {

Keys with_hierfavg(Keys changes) {
  changes.insert(
      {{"algorithm.name", "hierfavg"}, {"algorithm.edge_rounds", "3"}, {"topology.edges", "4"}});
  return tiny_keys(changes);
}

class HierFAVGReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(HierFAVGReference, EqualsPlainLoop) {
  const Keys keys = with_hierfavg(GetParam().changes);
  const bool anew = own_value(keys, "cohort", "round") == "edge_round";
  const reference::HierarchicalOutcome expected =
      (anew ? reference::hierfavg_of_the_authors : reference::hierfavg)(
          reference::make_problem(keys), std::stoll(keys.at("algorithm.edge_rounds")));
  const TinyResult result =
      expect_equals_reference(keys, expected.outcome, GetParam().single_bound);
  // Of the edges' own models, before the cloud's mean.
  if (world_communicator(60)->rank() == 0) {
    EXPECT_NEAR(result.metrics.back().edge_accuracy, mean_edge_accuracy(keys, expected.edges),
                1e-12);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Settings, HierFAVGReference,
    ::testing::Values(
        ReferenceCase{"four_edges", {}}, ReferenceCase{"one_edge", {{"topology.edges", "1"}}},
        ReferenceCase{"an_edge_per_client", {{"topology.edges", "7"}}},
        ReferenceCase{"one_edge_round", {{"algorithm.edge_rounds", "1"}}},
        ReferenceCase{"full_batch", {{"train.batch_size", "0"}, {"train.block", "3"}}},
        ReferenceCase{"steps", {{"train.local_epochs", "0"}, {"train.local_steps", "5"}}},
        ReferenceCase{"some_clients", {{"topology.participation", "0.5"}, {"run.rounds", "5"}}},
        ReferenceCase{"some_edges", {{"topology.edge_participation", "0.5"}, {"run.rounds", "5"}}},
        ReferenceCase{"some_clients_of_some_edges",
                      {{"topology.edges", "3"},
                       {"topology.edge_participation", "0.7"},
                       {"topology.participation", "0.5"},
                       {"run.rounds", "5"}}},
        ReferenceCase{"drawn_for_edge_rounds",
                      {{"algorithm.cohort", "edge_round"},
                       {"topology.participation", "0.5"},
                       {"topology.edges", "2"},
                       {"train.block", "2"},
                       {"run.rounds", "5"}}},
        ReferenceCase{"drawn_for_edge_rounds_of_some_edges",
                      {{"algorithm.cohort", "edge_round"},
                       {"algorithm.weighting", "uniform"},
                       {"topology.edges", "3"},
                       {"topology.edge_participation", "0.7"},
                       {"topology.participation", "0.5"},
                       {"run.rounds", "5"}}},
        ReferenceCase{"drawn_for_edge_rounds_without_late_ones",
                      {{"algorithm.cohort", "edge_round"},
                       {"topology.participation", "0.5"},
                       {"topology.edges", "2"},
                       {"train.stragglers", "0.7"},
                       {"train.straggler_work", "none"},
                       {"run.rounds", "6"}}},
        ReferenceCase{"late_clients",
                      {{"train.stragglers", "0.7"}, {"train.block", "3"}, {"run.rounds", "4"}}},
        ReferenceCase{"uniform", {{"algorithm.weighting", "uniform"}}},
        ReferenceCase{"batch_norm", with_batch_norm({{"train.block", "3"}}), kBatchNormBound},
        ReferenceCase{"momentum", {{"train.optimizer", "momentum"}, {"train.block", "8"}}}),
    name_of);

INSTANTIATE_TEST_SUITE_P(FallingRate, HierFAVGReference, ::testing::ValuesIn(falling_lr_cases()),
                         name_of);

TEST(HierFAVG, OneEdgeAndOneEdgeRoundIsFedAvg) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  for (const std::string participation : {"1", "0.4"}) {
    const Keys changes{{"topology.participation", participation}};
    Keys one_edge = changes;
    one_edge["topology.edges"] = "1";
    one_edge["algorithm.edge_rounds"] = "1";
    const TinyResult fedavg = run(tiny_keys(changes), *comm);
    const TinyResult hierfavg = run(with_hierfavg(one_edge), *comm);
    EXPECT_LT(distance(hierfavg.global, fedavg.global), 1e-12);
    EXPECT_EQ(hierfavg.cohorts, fedavg.cohorts);
  }
}

TEST(HierFAVG, OneEdgeIsFedAvgWithMoreRounds) {
  // In full batch nothing is drawn, so that edge rounds and rounds see the same batches.
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const TinyResult fedavg = run(tiny_keys({{"train.batch_size", "0"}, {"run.rounds", "6"}}), *comm);
  const TinyResult hierfavg = run(with_hierfavg({{"train.batch_size", "0"},
                                                 {"topology.edges", "1"},
                                                 {"algorithm.edge_rounds", "3"},
                                                 {"run.rounds", "2"}}),
                                  *comm);
  EXPECT_LT(distance(hierfavg.global, fedavg.global), 1e-12);
}

TEST(HierFAVG, BooksEveryLink) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const TinyResult result = run(with_hierfavg({{"topology.edge_participation", "0.5"}}), *comm);
  if (comm->rank() != 0) return;
  const double payload = 8 * static_cast<double>(result.global.numel());
  for (const RoundMetrics& metrics : result.metrics) {
    expect_bytes_of_edges(metrics, 2, 3, payload);  // two of four edges
  }
}

TEST(HierFAVG, CohortIsOfAllEdgeRoundsTogether) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const Keys keys = with_hierfavg({{"algorithm.cohort", "edge_round"},
                                   {"topology.edges", "1"},
                                   {"topology.participation", "0.3"}});  // two of seven
  const TinyResult result = run(keys, *comm);
  std::set<std::size_t> sizes;
  for (const auto& cohort : result.cohorts) {
    EXPECT_GE(cohort.size(), 2U);
    EXPECT_LE(cohort.size(), 6U);
    EXPECT_EQ(std::ranges::count(cohort, 3), 0) << "without samples";
    sizes.insert(cohort.size());
  }
  EXPECT_GT(*sizes.rbegin(), 2U);
  if (comm->rank() != 0) return;
  const double payload = 8 * static_cast<double>(result.global.numel());
  for (const RoundMetrics& metrics : result.metrics) {
    EXPECT_EQ(metrics.bytes_up_client_edge, 3 * 2 * payload);
  }
}

TEST(HierFAVG, EdgeRoundsMoveNothingBetweenEdges) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const Keys one{{"topology.edges", "4"}, {"algorithm.edge_rounds", "1"}};
  const Keys six{{"topology.edges", "4"}, {"algorithm.edge_rounds", "6"}};
  const TinyResult few = run(with_hierfavg(one), *comm);
  const TinyResult many = run(with_hierfavg(six), *comm);
  // All that a further edge round exchanges stays among the ranks of one edge.
  EXPECT_EQ(many.world_bytes, few.world_bytes);
  EXPECT_EQ(many.leader_bytes, few.leader_bytes);
  EXPECT_GT(many.edge_bytes, few.edge_bytes);
}

TEST(HierFAVG, NeedsEdges) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  EXPECT_THROW(run(with_hierfavg({{"topology.edges", "0"}}), *comm), ConfigError);
  EXPECT_THROW(run(with_hierfavg({{"topology.edges", "8"}}), *comm), ConfigError);
}

TEST(HierFAVG, AScheduleCountsTheEpochsOfAllEdgeRounds) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  for (const std::string cohort : {"round", "edge_round"}) {  // 2 x 3 x 2 epochs
    for (const auto& [period, taken] : {std::pair{"11", false}, {"12", true}}) {
      const Keys keys = with_hierfavg({{"algorithm.cohort", cohort},
                                       {"run.rounds", "2"},
                                       {"train.lr_schedule", "cosine"},
                                       {"train.lr_unit", "epoch"},
                                       {"train.lr_period", period}});
      if (taken) {
        EXPECT_NO_THROW(run(keys, *comm));
      } else {
        EXPECT_THROW(run(keys, *comm), ConfigError);
      }
    }
  }
}

}  // namespace
}  // namespace fedhpc::testing
