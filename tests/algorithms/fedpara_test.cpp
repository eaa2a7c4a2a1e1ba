#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"
#include "fedhpc/factorisations/factorisation.hpp"

#include "fixtures/factor_case.hpp"
#include "reference/fedpara_reference.hpp"

namespace fedhpc::testing {
namespace {

Keys with_fedpara(const Keys& changes = {}) { return with_factors("fedpara", changes); }

reference::FactorOutcome fedpara_of(const Keys& keys, const reference::Problem& problem) {
  reference::FactorisationSettings settings = factorisation_of(keys, "hadamard", "raw");
  settings.full_rank = value_or(keys, "model.rank_bound", "none") == "full";
  settings.like_layers = own_value(keys, "init", "weights") == "factors";
  return reference::fedpara(problem, settings, range_of(keys));
}

class FedParaReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(FedParaReference, EqualsPlainLoop) {
  const Keys keys = with_fedpara(GetParam().changes);
  reference::Problem problem = reference::make_problem(keys);
  const reference::FactorOutcome expected = fedpara_of(keys, problem);
  ASSERT_GT(expected.layers.size(), 0U);
  const TinyResult result =
      expect_equals_reference(keys, expected.outcome, GetParam().single_bound);
  problem.rounds = 0;
  EXPECT_LT(distance(result.initial, fedpara_of(keys, problem).outcome.global), 1e-12);
  if (world_communicator(60)->rank() != 0) return;
  expect_factor_series(keys, result, expected);
  expect_rows_of_factors(result, expected.row_size, 8);
}

INSTANTIATE_TEST_SUITE_P(Settings, FedParaReference, ::testing::ValuesIn(all_cases()), name_of);

INSTANTIATE_TEST_SUITE_P(
    Factors, FedParaReference,
    ::testing::Values(
        ReferenceCase{"uniform", {{"algorithm.init_range", "0.9"}, {"train.block", "3"}}},
        ReferenceCase{"any_width", {{"train.block", "auto"}, {"model.exclude", "none"}}},
        ReferenceCase{"ranks", {{"model.rank", "3,1"}, {"model.exclude", "fc1,fc4"}}},
        ReferenceCase{"rank_above_the_sides", {{"model.rank", "12"}, {"model.exclude", "none"}}},
        ReferenceCase{"whole_model",
                      {{"model.compression", "1.2"}, {"model.compression_scope", "model"}}},
        ReferenceCase{"convolutions", with_batch_norm({{"model.exclude", "none"}}),
                      kBatchNormBound},
        ReferenceCase{"full_rank", {{"model.rank_bound", "full"}, {"algorithm.init", "factors"}}},
        ReferenceCase{"convolutions_of_full_rank",
                      with_batch_norm({{"model.rank_bound", "full"},
                                       {"model.compression", "8"},
                                       {"model.exclude", "none"},
                                       {"algorithm.init", "factors"}}),
                      kBatchNormBound},
        ReferenceCase{"convolutions_of_rank_2",
                      with_batch_norm({{"model.rank", "2"}, {"train.block", "3"}}),
                      kBatchNormBound},
        ReferenceCase{"convolutions_uniform",
                      with_batch_norm({{"model.exclude", "last"},
                                       {"model.compression", "1.1"},
                                       {"algorithm.init_range", "0.8"}}),
                      kBatchNormBound}),
    name_of);

TEST(FedPara, ConvolutionsHaveTheRankOfTheirTarget) {
  // 2 (r^2 k^2 + r (out + in)) at most the compressed size: of 256 x 128 x 3 x 3 at 1/32, 9.
  reference::FactorisationSettings hadamard{.name = "hadamard"};
  Field kernels;
  kernels.shape = {256, 128, 3, 3};
  kernels.size = 256 * 128 * 9;
  EXPECT_EQ(reference::size_for(hadamard, kernels, 1.0 / 32), 9);
  Field matrix;
  matrix.shape = {100, 784};
  matrix.size = 78400;
  EXPECT_EQ(reference::size_for(hadamard, matrix, 0.25), 11);
}

TEST(FedPara, FullRankStaysPossibleWithTheAuthorsBound) {
  // r = 8, 12, 16 of 32-64, 64-128 and 128-256 channels at 1/32; 8, 13, 25 at a tenth.
  for (const auto& [out, in_32nd, in_tenth] :
       {std::tuple{64, 8, 8}, std::tuple{128, 12, 13}, std::tuple{256, 16, 25}}) {
    const WeightShape shape{.sizes = {out, out / 2, 3, 3}, .fan_in = out / 2 * 9};
    const FactorForm form{.bound = RankBound::Full};
    const auto rank_at = [&](double rate) {
      const auto made = make_factorisation("hadamard", shape, CompressionRate{rate}, form);
      return made->factors()[0].sizes[0];
    };
    EXPECT_EQ(rank_at(32), in_32nd) << out;
    EXPECT_EQ(rank_at(10), in_tenth) << out;
  }
}

TEST(FedPara, RefusesKeysThatDoNotAct) {
  EXPECT_TRUE(
      refuses_on_command_line(with_fedpara({{"model.rank_bound", "full"}, {"model.rank", "2"}})));
  EXPECT_TRUE(refuses_on_command_line(
      with_fedpara({{"algorithm.init", "factors"}, {"algorithm.init_range", "0.5"}})));
  EXPECT_FALSE(refuses_on_command_line(
      with_fedpara({{"algorithm.init", "factors"}, {"model.rank_bound", "full"}})));
}

TEST(FedPara, OneParticipantHasNoGapAndSeveralHave) { expect_gap_of_several("fedpara"); }

TEST(FedPara, RefusesWhatDoesNotFit) {
  expect_refuses_other_factors("fedpara", {"low_rank", "kronecker"}, "0");
}

}  // namespace
}  // namespace fedhpc::testing
