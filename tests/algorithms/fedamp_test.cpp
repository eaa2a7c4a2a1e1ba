#include <numeric>
#include <string>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/message_passing_case.hpp"
#include "reference/fedamp_reference.hpp"

namespace fedhpc::testing {
namespace {

Keys with_fedamp(Keys changes) {
  changes.insert({{"algorithm.name", "fedamp"},
                  {"algorithm.sigma", "2"},
                  {"algorithm.alpha_k", "0.3"},
                  {"algorithm.lambda", "0.7"}});
  return tiny_keys(changes);
}

reference::FedAMPSettings settings_of(const Keys& keys) {
  return {.sigma = std::stod(keys.at("algorithm.sigma")),
          .alpha_k = std::stod(keys.at("algorithm.alpha_k")),
          .lambda = std::stod(keys.at("algorithm.lambda")),
          .any_own_weight = own_value(keys, "own_weight", "clamp") == "any"};
}

class FedAMPReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(FedAMPReference, EqualsPlainLoop) {
  const Keys keys = with_fedamp(GetParam().changes);
  expect_equals_messages(keys, reference::fedamp(reference::make_problem(keys), settings_of(keys)),
                         GetParam().single_bound);
}

INSTANTIATE_TEST_SUITE_P(
    Settings, FedAMPReference,
    ::testing::Values(
        ReferenceCase{"epochs", {}}, ReferenceCase{"wide_blocks", {{"train.block", "4"}}},
        ReferenceCase{"steps", {{"train.local_epochs", "0"}, {"train.local_steps", "6"}}},
        ReferenceCase{"full_batch", {{"train.batch_size", "0"}}},
        ReferenceCase{"some_clients", {{"topology.participation", "0.4"}, {"run.rounds", "6"}}},
        ReferenceCase{"narrow_attention", {{"algorithm.sigma", "0.3"}}},
        ReferenceCase{"scaled_down", {{"algorithm.alpha_k", "40"}}},
        ReferenceCase{
            "negative_own_weight",
            {{"algorithm.alpha_k", "0.6"}, {"algorithm.own_weight", "any"}, {"run.rounds", "6"}}},
        ReferenceCase{"some_scaled_down", {{"algorithm.alpha_k", "0.6"}, {"run.rounds", "6"}}},
        ReferenceCase{
            "defaults",
            {{"algorithm.sigma", "25"}, {"algorithm.alpha_k", "1"}, {"algorithm.lambda", "1"}}},
        ReferenceCase{"momentum", {{"train.optimizer", "momentum"}, {"train.momentum", "0.5"}}},
        ReferenceCase{"batch_norm", with_batch_norm({{"train.block", "3"}}), kBatchNormBound},
        ReferenceCase{"weight_decay", {{"train.weight_decay", "0.01"}, {"train.block", "3"}}}),
    name_of);

TEST(FedAMP, ReferenceWeightsAreSharesOfOne) {
  const Keys keys = with_fedamp({});
  const reference::MessagesOutcome trained =
      reference::fedamp(reference::make_problem(keys), settings_of(keys));
  for (const double alpha_k : {0.0, 0.1, 0.6, 40.0}) {
    for (std::size_t i = 0; i < trained.models.size(); ++i) {
      const std::vector<double> xi =
          reference::fedamp_weights(i, trained.models, {.sigma = 2, .alpha_k = alpha_k});
      EXPECT_NEAR(std::accumulate(xi.begin(), xi.end(), 0.0), 1, 1e-14);
      for (const double weight : xi) EXPECT_GE(weight, 0);
      if (alpha_k == 40) {
        EXPECT_EQ(xi[i], 0);
      }
    }
  }
}

TEST(FedAMP, OwnWeightMayBeNegative) {
  const Keys keys = with_fedamp({{"algorithm.alpha_k", "0.6"}, {"algorithm.own_weight", "any"}});
  const std::vector<reference::Parameters> models(
      7, reference::make_problem(keys).initial);  // near each other: six times 0.3
  EXPECT_NEAR(reference::fedamp_weights(0, models, settings_of(keys))[0], 1 - 6 * 0.3, 1e-12);
  Keys clamped = keys;
  clamped["algorithm.own_weight"] = "clamp";
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  EXPECT_GT(distance(run(keys, *comm).global, run(clamped, *comm).global), 1e-2);
  Keys small = keys;  // the others are less than 1 together
  small["algorithm.alpha_k"] = "0.3";
  Keys small_clamped = small;
  small_clamped["algorithm.own_weight"] = "clamp";
  EXPECT_TRUE(run(small, *comm).global.equal(run(small_clamped, *comm).global));
}

TEST(FedAMP, WithoutStepAndTermEveryClientIsAlone) {
  for (const std::string dtype : {"float64", "float32"}) {
    expect_every_client_alone(with_fedamp({{"algorithm.alpha_k", "0"},
                                           {"algorithm.lambda", "0"},
                                           {"run.dtype", dtype},
                                           {"topology.participation", "0.6"}}));
  }
}

TEST(FedAMP, OneClientIsAlone) {
  expect_every_client_alone(with_one_client(with_fedamp({{"algorithm.lambda", "0"}})));
}

TEST(FedAMP, ClientsThatNeverTrainedKeepTheInitialModel) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const TinyResult result =
      run(with_fedamp({{"topology.participation", "0.3"}, {"run.rounds", "2"}}), *comm);
  expect_untrained_have(result.initial, result);
}

TEST(FedAMP, BooksOneModelEachWay) { expect_one_model_each_way(with_fedamp({})); }

}  // namespace
}  // namespace fedhpc::testing
