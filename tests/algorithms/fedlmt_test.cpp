#include <string>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/factor_case.hpp"
#include "fixtures/resumed_run.hpp"
#include "reference/fedlmt_reference.hpp"

namespace fedhpc::testing {
namespace {

Keys with_fedlmt(const Keys& changes = {}) { return with_factors("fedlmt", changes); }

reference::FactorOutcome fedlmt_of(const Keys& keys, const reference::Problem& problem) {
  return reference::fedlmt(problem, factorisation_of(keys, "low_rank", "permuted"), range_of(keys));
}

class FedLMTReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(FedLMTReference, EqualsPlainLoop) {
  const Keys keys = with_fedlmt(GetParam().changes);
  reference::Problem problem = reference::make_problem(keys);
  const reference::FactorOutcome expected = fedlmt_of(keys, problem);
  ASSERT_GT(expected.layers.size(), 0U);
  const TinyResult result =
      expect_equals_reference(keys, expected.outcome, GetParam().single_bound);
  problem.rounds = 0;
  EXPECT_LT(distance(result.initial, fedlmt_of(keys, problem).outcome.global), 1e-12);
  if (world_communicator(60)->rank() != 0) return;
  expect_factor_series(keys, result, expected);
  expect_rows_of_factors(result, expected.row_size, 8);
}

INSTANTIATE_TEST_SUITE_P(Settings, FedLMTReference, ::testing::ValuesIn(all_cases()), name_of);

INSTANTIATE_TEST_SUITE_P(
    Factors, FedLMTReference,
    ::testing::Values(
        ReferenceCase{"uniform", {{"algorithm.init_range", "0.8"}, {"train.block", "3"}}},
        ReferenceCase{"any_width", {{"train.block", "auto"}, {"model.exclude", "none"}}},
        ReferenceCase{"ranks", {{"model.rank", "3,1"}, {"model.exclude", "fc1,fc4"}}},
        ReferenceCase{"rank_above_the_sides", {{"model.rank", "12"}, {"model.exclude", "none"}}},
        ReferenceCase{"whole_model",
                      {{"model.compression", "1.4"}, {"model.compression_scope", "model"}}},
        ReferenceCase{"convolutions_raw",
                      with_batch_norm({{"model.exclude", "none"}, {"model.conv_view", "raw"}}),
                      kBatchNormBound},
        ReferenceCase{"convolutions_permuted",
                      with_batch_norm({{"model.exclude", "none"}, {"train.block", "3"}}),
                      kBatchNormBound},
        ReferenceCase{"convolutions_whole_model",
                      with_batch_norm({{"model.exclude", "last"},
                                       {"model.compression_scope", "model"},
                                       {"model.compression", "1.8"},
                                       {"algorithm.init_range", "0.5"}}),
                      kBatchNormBound}),
    name_of);

TEST(FedLMT, OneParticipantHasNoGapAndSeveralHave) { expect_gap_of_several("fedlmt"); }

TEST(FedLMT, RanksOfChangesAreAtMostTwiceTheRank) {
  // U' V'^T - U V^T; its effective rank is at least 1.
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const Keys keys = with_fedlmt({{"model.rank", "1,2"}});
  const TinyResult result = run(keys, *comm);
  if (comm->rank() != 0) return;
  for (const auto& [layer, most] : std::map<std::string, double>{{"fc2", 2}, {"fc3", 4}}) {
    for (const double rank : own_series(keys, result, "effective_rank." + layer)) {
      EXPECT_LT(rank, most * (1 + 1e-9)) << layer;
      EXPECT_GE(rank, 1) << layer;
    }
  }
}

TEST(FedLMT, GoesOnFromItsOwnFirstFactorsThoughNoFileHasThem) {
  // A client that is drawn for the first time after the checkpoint knows the factors before round 1.
  const auto world = world_communicator(60);
  const Keys keys = with_fedlmt({{"run.save", "draws"},
                                 {"run.rounds", "6"},
                                 {"topology.participation", "0.3"},
                                 {"algorithm.downlink_codec", "int4"}});
  const TinyResult straight = run(keys, *world);
  EXPECT_TRUE(run_in_two_parts(keys, 2, *world, *world).global.equal(straight.global));
}

TEST(FedLMT, RefusesWhatDoesNotFit) {
  expect_refuses_other_factors("fedlmt", {"kronecker", "low_rank_f"}, "0");
}

}  // namespace
}  // namespace fedhpc::testing
