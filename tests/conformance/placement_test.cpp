#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/comm/session.hpp"

#include "fixtures/in_turn.hpp"
#include "fixtures/resumed_run.hpp"
#include "fixtures/tiny_run.hpp"

// Where participants are trained changes no result of any algorithm of the registry.
namespace fedhpc::testing {
namespace {

class EveryAlgorithmPlaced : public ::testing::TestWithParam<std::string> {
 protected:
  /// Two thirds of the training samples are with clients 0 and 6, which end up on two ranks.
  Keys keys(const std::string& placement, Keys changes) const {
    changes["topology.placement"] = placement;
    return tiny_keys_of(GetParam(), std::move(changes));
  }
  bool is_private() const {
    return make_algorithm(GetParam(), "test")->traits().private_uploads() > 0;
  }
  bool moves() const { return make_algorithm(GetParam(), "test")->traits().can_leave_rounds; }

  std::unique_ptr<Communicator> world_ = world_communicator(60);
  std::unique_ptr<Communicator> alone_ = local_communicator();
};

TEST_P(EveryAlgorithmPlaced, SameBitsWhenReproducible) {
  std::size_t place = 0;
  std::int64_t moved = 0;
  for (const std::string edges : {"0", "1", "4", "7"}) {
    if (edges == "0" && has_edge_models(GetParam())) continue;
    for (const std::string participation : {"0.5", "1"}) {
      const std::string dtype = in_turn<std::string>({"float64", "float32"}, place++, *world_);
      Keys changes = {{"topology.edges", edges},
                      {"topology.participation", participation},
                      {"train.stragglers", edges == "4" ? "0.5" : "0"},
                      {"run.dtype", dtype},
                      {"run.reproducible", "true"},
                      {"network.step_seconds", "0.5"}};
      if (edges == "0" && participation == "0.5" && is_private()) changes["privacy.clip"] = "0.05";
      const TinyResult expected = run(keys("home", changes), *alone_);
      for (const std::string placement : {"home", "balanced"}) {
        const TinyResult actual = run(keys(placement, changes), *world_);
        expect_same_bits(actual, expected, *world_);
        EXPECT_TRUE(placement == "balanced" || actual.moved == 0);
        moved += actual.moved;
      }
    }
  }
  // Four ranks that share one edge have hardly more clients to train than ranks.
  const bool may_be_none = has_edge_models(GetParam()) && world_->size() > 3;
  EXPECT_TRUE(may_be_none || (moved > 0) == (moves() && world_->size() > 1)) << moved;
}

TEST_P(EveryAlgorithmPlaced, SameToRoundingOtherwiseAndTheSameBitsAgain) {
  std::size_t place = 0;
  for (const auto& [edges, participation] :
       {std::pair{"0", "0.5"}, std::pair{"1", "0.5"}, std::pair{"4", "1"}, std::pair{"7", "0.5"}}) {
    if (edges == std::string("0") && has_edge_models(GetParam())) continue;
    const std::string dtype = in_turn<std::string>({"float32", "float64"}, place++, *world_);
    const Keys changes = {
        {"topology.edges", edges}, {"topology.participation", participation}, {"run.dtype", dtype}};
    const TinyResult expected = run(keys("home", changes), *alone_);
    const TinyResult actual = run(keys("balanced", changes), *world_);
    const double bound = dtype == "float64" ? 1e-9 : GetParam() == "tdpfed" ? 1e-3 : 1e-5;
    EXPECT_LT(distance(actual.global, expected.global), bound);
    EXPECT_LT(distance(actual.personal, expected.personal), bound);
    EXPECT_EQ(actual.cohorts, expected.cohorts);
    expect_same_bits(run(keys("balanced", changes), *world_), actual, *world_);
  }
}

TEST_P(EveryAlgorithmPlaced, MayBeStoppedAndLeftWhileClientsAreAway) {
  const Keys these = keys("balanced", {{"run.rounds", "4"}, {"topology.participation", "0.7"}});
  const TinyResult straight = run(these, *world_);
  expect_same_bits(run_in_two_parts(these, 2, *world_, *world_), straight, *world_);
  Keys leaving = these;
  leaving["run.rounds"] = "2";
  leaving["run.grace_seconds"] = "0";
  const TinyResult whole = run(leaving, *world_);
  int left = 0;
  expect_same_bits(run_left_in_rounds(leaving, *world_, left), whole, *world_);
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryAlgorithmPlaced, ::testing::ValuesIn(algorithm_names()),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace fedhpc::testing
