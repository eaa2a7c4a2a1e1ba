#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/tiny_run.hpp"
#include "reference/fedavg_reference.hpp"

namespace fedhpc::testing {
namespace {

struct Case {
  std::string name;
  Keys changes;
  double single_bound = 1e-5;  // float32
};

class FedAvgReference : public ::testing::TestWithParam<Case> {};

TEST_P(FedAvgReference, EqualsPlainLoop) {
  const Keys keys = tiny_keys(GetParam().changes);
  const reference::Outcome expected = reference::fedavg(reference::make_problem(keys));
  ASSERT_GT(distance(expected.global, reference::flatten(reference::make_problem(keys).initial)),
            1e-3)
      << "the reference moved";
  const std::unique_ptr<Communicator> comm = world_communicator(60);

  const TinyResult exact = run(keys, *comm);

  EXPECT_LT(distance(exact.global, expected.global), 1e-9);
  ASSERT_EQ(exact.metrics.size(), expected.train_loss.size());
  for (std::size_t t = 0; t < expected.train_loss.size(); ++t) {
    EXPECT_NEAR(exact.metrics[t].train_loss, expected.train_loss[t], 1e-12) << "round " << t + 1;
  }

  Keys rounded = keys;
  rounded["run.dtype"] = "float32";
  EXPECT_LT(distance(run(rounded, *comm).global, expected.global), GetParam().single_bound);
}

INSTANTIATE_TEST_SUITE_P(
    Settings, FedAvgReference,
    ::testing::Values(
        Case{"epochs", {}},
        Case{"steps_beyond_an_epoch", {{"train.local_epochs", "0"}, {"train.local_steps", "9"}}},
        Case{"full_batch", {{"train.batch_size", "0"}}},
        Case{"batch_of_one", {{"train.batch_size", "1"}, {"train.local_epochs", "1"}}},
        Case{"some_clients", {{"topology.participation", "0.4"}, {"run.rounds", "5"}}},
        Case{"uniform", {{"algorithm.weighting", "uniform"}}}, Case{"mlr", {{"model.name", "mlr"}}},
        Case{"two_hidden", {{"model.hidden", "6,5"}}}, Case{"wide_blocks", {{"train.block", "4"}}},
        Case{"measured_blocks", {{"train.block", "auto"}}}),
    [](const auto& one) { return one.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Optimizers, FedAvgReference,
    ::testing::Values(
        Case{"momentum", {{"train.optimizer", "momentum"}}},
        Case{"sgd_with_momentum", {{"train.momentum", "0.5"}, {"train.block", "3"}}},
        Case{"nesterov", {{"train.optimizer", "nesterov"}, {"train.momentum", "0.8"}}},
        Case{"sgd_with_nesterov", {{"train.momentum", "0.6"}, {"train.nesterov", "true"}}},
        Case{"weight_decay", {{"train.weight_decay", "0.3"}, {"train.block", "2"}}},
        Case{"nesterov_with_decay",
             {{"train.optimizer", "nesterov"}, {"train.weight_decay", "0.05"}}},
        Case{"adam", {{"train.optimizer", "adam"}, {"train.lr", "0.01"}}, 1e-3},
        Case{"adam_with_decay",
             {{"train.optimizer", "adam"},
              {"train.lr", "0.02"},
              {"train.weight_decay", "0.1"},
              {"train.block", "4"}},
             1e-3},
        Case{"adam_in_full_batch",
             {{"train.optimizer", "adam"}, {"train.lr", "0.01"}, {"train.batch_size", "0"}},
             1e-3}),
    [](const auto& one) { return one.param.name; });

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
        reference::loss_and_gradient(w, problem.clients[static_cast<std::size_t>(k)], batch);
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = w[i].sub(step.gradient[i], problem.lr);
  }
  EXPECT_LT(distance(run(keys, *comm).global, reference::flatten(w)), 1e-12);
}

TEST(FedAvg, EdgesOnlyGroupClients) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const TinyResult without = run(tiny_keys(), *comm);
  const TinyResult with = run(tiny_keys({{"topology.edges", "3"}}), *comm);
  EXPECT_TRUE(with.global.equal(without.global));
  if (comm->rank() == 0) {
    EXPECT_TRUE(std::isnan(with.metrics.back().edge_accuracy));
    EXPECT_TRUE(std::isnan(with.metrics.back().bytes_up_client_edge));
    EXPECT_EQ(with.metrics.back().bytes_up_client_cloud,
              without.metrics.back().bytes_up_client_cloud);
  }
}

}  // namespace
}  // namespace fedhpc::testing
