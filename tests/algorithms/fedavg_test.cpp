#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/reference_case.hpp"
#include "fixtures/resumed_run.hpp"
#include "reference/fedavg_reference.hpp"

namespace fedhpc::testing {
namespace {

class FedAvgReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(FedAvgReference, EqualsPlainLoop) {
  const Keys keys = tiny_keys(GetParam().changes);
  expect_equals_reference(keys, reference::fedavg(reference::make_problem(keys)),
                          GetParam().single_bound);
}

INSTANTIATE_TEST_SUITE_P(
    Settings, FedAvgReference,
    ::testing::Values(
        ReferenceCase{"epochs", {}},
        ReferenceCase{"steps_beyond_an_epoch",
                      {{"train.local_epochs", "0"}, {"train.local_steps", "9"}}},
        ReferenceCase{"full_batch", {{"train.batch_size", "0"}}},
        ReferenceCase{"batch_of_one", {{"train.batch_size", "1"}, {"train.local_epochs", "1"}}},
        ReferenceCase{"some_clients", {{"topology.participation", "0.4"}, {"run.rounds", "5"}}},
        ReferenceCase{"uniform", {{"algorithm.weighting", "uniform"}}},
        ReferenceCase{"mlr", {{"model.name", "mlr"}}},
        ReferenceCase{"two_hidden", {{"model.hidden", "6,5"}}},
        ReferenceCase{"wide_blocks", {{"train.block", "4"}}},
        ReferenceCase{"measured_blocks", {{"train.block", "auto"}}},
        ReferenceCase{"batch_norm", with_batch_norm(), kBatchNormBound},
        ReferenceCase{"batch_norm_nesterov",
                      with_batch_norm({{"train.optimizer", "nesterov"}, {"train.block", "4"}}),
                      kBatchNormBound}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Optimizers, FedAvgReference,
    ::testing::Values(
        ReferenceCase{"momentum", {{"train.optimizer", "momentum"}}},
        ReferenceCase{"sgd_with_momentum", {{"train.momentum", "0.5"}, {"train.block", "3"}}},
        ReferenceCase{"nesterov", {{"train.optimizer", "nesterov"}, {"train.momentum", "0.8"}}},
        ReferenceCase{"sgd_with_nesterov", {{"train.momentum", "0.6"}, {"train.nesterov", "true"}}},
        ReferenceCase{"weight_decay", {{"train.weight_decay", "0.3"}, {"train.block", "2"}}},
        ReferenceCase{"nesterov_with_decay",
                      {{"train.optimizer", "nesterov"}, {"train.weight_decay", "0.05"}}},
        ReferenceCase{"adam", {{"train.optimizer", "adam"}, {"train.lr", "0.01"}}, 1e-3},
        ReferenceCase{"adam_with_decay",
                      {{"train.optimizer", "adam"},
                       {"train.lr", "0.02"},
                       {"train.weight_decay", "0.1"},
                       {"train.block", "4"}},
                      1e-3},
        ReferenceCase{
            "adam_in_full_batch",
            {{"train.optimizer", "adam"}, {"train.lr", "0.01"}, {"train.batch_size", "0"}},
            1e-3}),
    name_of);

INSTANTIATE_TEST_SUITE_P(FallingRate, FedAvgReference, ::testing::ValuesIn(falling_lr_cases()),
                         name_of);

INSTANTIATE_TEST_SUITE_P(UndecayedBiases, FedAvgReference,
                         ::testing::Values(ReferenceCase{"sgd",
                                                         {{"train.weight_decay", "0.3"},
                                                          {"train.decay_biases", "false"},
                                                          {"train.block", "3"}}},
                                           ReferenceCase{"adam",
                                                         {{"train.optimizer", "adam"},
                                                          {"train.lr", "0.01"},
                                                          {"train.weight_decay", "0.1"},
                                                          {"train.decay_biases", "false"}},
                                                         1e-3},
                                           ReferenceCase{
                                               "batch_norm",
                                               with_batch_norm({{"train.weight_decay", "0.2"},
                                                                {"train.decay_biases", "false"},
                                                                {"train.momentum", "0.5"}}),
                                               kBatchNormBound}),
                         name_of);

TEST(FedAvg, ASchedulesRateIsAFunctionOfTheRound) {
  // A run that goes on from a checkpoint equals one in a piece.
  const auto world = world_communicator(60);
  for (const std::string unit : {"round", "epoch"}) {
    const Keys keys = tiny_keys(with_falling_lr(unit, {{"run.rounds", "5"}}));
    EXPECT_TRUE(run_in_two_parts(keys, 2, *world, *world).global.equal(run(keys, *world).global))
        << unit;
    Keys still = keys;
    still["train.lr_decay"] = "1";
    Keys constant = tiny_keys({{"run.rounds", "5"}});
    EXPECT_TRUE(run(still, *world).global.equal(run(constant, *world).global)) << unit;
    EXPECT_GT(distance(run(keys, *world).global, run(constant, *world).global), 1e-3) << unit;
  }
}

TEST(FedAvg, OptimizersDiffer) {
  // Rules, momenta and decays that are read but not used would give equal models.
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const std::vector<Keys> rules = {{},
                                   {{"train.optimizer", "momentum"}},
                                   {{"train.optimizer", "nesterov"}},
                                   {{"train.optimizer", "adam"}},
                                   {{"train.momentum", "0.5"}},
                                   {{"train.weight_decay", "0.1"}}};
  std::vector<Tensor> models;
  for (const Keys& rule : rules) models.push_back(run(tiny_keys(rule), *comm).global);
  for (std::size_t a = 0; a < models.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) EXPECT_GT(distance(models[a], models[b]), 1e-3);
  }
}

TEST(FedAvg, OneClientIsPlainSgd) {
  // Limit case: with one client per round the mean is that client's model.
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const Keys keys = tiny_keys({{"topology.participation", "0.01"}, {"run.rounds", "1"}});
  const reference::Problem problem = reference::make_problem(keys);
  const std::int64_t k = reference::cohort(problem, 1).front();
  reference::Parameters w;
  for (const Tensor& parameter : problem.initial) w.push_back(parameter.clone());
  for (const auto& batch : reference::batches(problem, k, 1, 0)) {
    const auto step =
        reference::training_loss_(problem, w, problem.clients[static_cast<std::size_t>(k)], batch,
                                  reference::Statistics::Stay);
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = w[i].sub(step.gradient[i], problem.lr);
  }
  EXPECT_LT(distance(run(keys, *comm).global, reference::flatten(w)), 1e-12);
}

TEST(FedAvg, EdgesOnlyGroupClients) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  for (const std::string exactly : {"true", "false"}) {
    const Keys changes{{"run.reproducible", exactly}};
    const TinyResult without = run(tiny_keys(changes), *comm);
    for (const std::string edges : {"1", "4", "7"}) {
      Keys grouped = changes;
      grouped["topology.edges"] = edges;
      const TinyResult with = run(tiny_keys(grouped), *comm);
      EXPECT_LT(distance(with.global, without.global), 1e-9);
      if (exactly == "true") {
        EXPECT_TRUE(with.global.equal(without.global)) << edges << " edges";
      }
      if (comm->rank() != 0) continue;
      const RoundMetrics& last = with.metrics.back();
      EXPECT_TRUE(std::isnan(last.edge_accuracy));
      EXPECT_TRUE(std::isnan(last.bytes_up_client_edge));
      EXPECT_EQ(last.bytes_up_client_cloud, without.metrics.back().bytes_up_client_cloud);
    }
  }
}

TEST(FedAvg, TheKeyOfPowerSgdsRankSaysWhatItSends) {
  // Weights [6, 8] and [4, 6] as r (6 + 8) and r (4 + 6) numbers where these are fewer; biases whole.
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const std::map<std::string, double> numbers{
      {"1", 14 + 10 + 10}, {"2", 28 + 20 + 10}, {"3", 42 + 24 + 10}, {"4", 48 + 24 + 10}};
  for (const auto& [rank, count] : numbers) {
    const TinyResult result =
        run(tiny_keys({{"algorithm.codec", "power_sgd"}, {"algorithm.codec_rank", rank}}), *comm);
    if (comm->rank() != 0) continue;
    for (const RoundMetrics& metrics : result.metrics) {
      EXPECT_EQ(metrics.bytes_up_client_cloud, 7 * 8 * count) << rank;
    }
  }
}

}  // namespace
}  // namespace fedhpc::testing
