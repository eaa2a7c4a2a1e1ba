#include <string>

#include <gtest/gtest.h>

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/comm/session.hpp"

#include "fixtures/in_turn.hpp"
#include "fixtures/resumed_run.hpp"
#include "support/turns.hpp"

// Saving, loading and going on, for every algorithm of the registry without code of its own.
namespace fedhpc::testing {
namespace {

class EveryAlgorithmResumed : public ::testing::TestWithParam<std::string> {
 protected:
  Keys keys(Keys changes = {}) const {
    changes.insert({"run.rounds", "6"});
    changes["topology.participation"] = "0.5";
    return tiny_keys_of(GetParam(), changes);
  }

  std::unique_ptr<Communicator> world_ = world_communicator(60);
  std::unique_ptr<Communicator> alone_ = local_communicator();
};

TEST_P(EveryAlgorithmResumed, EqualsAStraightRunBitForBit) {
  // All pairs of the three; every other one on each number of ranks.
  std::size_t place = 0;
  for (const auto& [dtype, eval_every, stop_after] :
       {std::tuple{"float64", "1", 1}, std::tuple{"float32", "4", 1}, std::tuple{"float64", "4", 3},
        std::tuple{"float32", "1", 3}, std::tuple{"float64", "1", 5},
        std::tuple{"float32", "4", 5}}) {
    if (!in_turn<bool>({true, false}, place++, *world_)) continue;
    const Keys these =
        keys({{"run.dtype", dtype},
              {"run.eval_every", eval_every},
              {"train.stragglers", dtype == std::string("float64") ? "0.5,0.2" : "0"}});
    const TinyResult straight = run(these, *world_);
    const TinyResult parts = run_in_two_parts(these, stop_after, *world_, *world_);
    EXPECT_TRUE(parts.global.equal(straight.global)) << dtype << " after " << stop_after;
    EXPECT_EQ(parts.cohorts, straight.cohorts);
    expect_same_bits(parts, straight, *world_);
  }
}

TEST_P(EveryAlgorithmResumed, MayGoOnOnOneRank) {
  const std::string dtype = in_turn<std::string>({"float64", "float32"}, 0, *world_);
  const Keys these = keys({{"run.dtype", dtype}});
  const TinyResult straight = run(these, *alone_);
  const TinyResult parts = run_in_two_parts(these, 3, *world_, *alone_);
  EXPECT_LT(distance(parts.global, straight.global), dtype == "float64" ? 1e-9 : 1e-5);
}

TEST_P(EveryAlgorithmResumed, TrainsOnAfterTheCheckpoint) {
  const TinyResult first_part = run(keys({{"run.rounds", "3"}}), *world_);
  const TinyResult parts = run_in_two_parts(keys(), 3, *world_, *world_);
  EXPECT_GT(distance(first_part.global, parts.global), 1e-3);
}

TEST_P(EveryAlgorithmResumed, MayBeLeftBetweenAnyTwoBlocks) {
  const bool can = make_algorithm(GetParam(), "test")->traits().can_leave_rounds;
  int left_in_all = 0;
  for (const auto& [rounds, edges, reproducible, participation] :
       {std::tuple{"1", "7", "false", "1"}, std::tuple{"1", "1", "false", "0.5"},
        std::tuple{"2", "4", "true", "0.5"}}) {
    if (participation != std::string("1") && !takes_case(GetParam() + edges, 2)) continue;
    Keys these = keys({{"run.rounds", rounds},
                       {"run.reproducible", reproducible},
                       {"run.grace_seconds", "0"},
                       {"network.step_seconds", "0.5"},
                       {"train.block", "1"}});
    if (has_edge_models(GetParam())) these["topology.edges"] = edges;
    these["topology.participation"] = participation;
    if (edges == std::string("4")) these["train.stragglers"] = "0.5";
    const TinyResult straight = run(these, *world_);
    int left = 0;
    const TinyResult parts = run_left_in_rounds(these, *world_, left);
    EXPECT_EQ(parts.cohorts, straight.cohorts);
    expect_same_bits(parts, straight, *world_);
    left_in_all += left;
  }
  // A rank with one participant has no place to leave a round: on four ranks only the first run has
  // one.
  EXPECT_EQ(left_in_all > 0, can);
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryAlgorithmResumed, ::testing::ValuesIn(algorithm_names()),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace fedhpc::testing
