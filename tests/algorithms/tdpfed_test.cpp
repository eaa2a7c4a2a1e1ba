#include <cmath>
#include <string>

#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"
#include "fedhpc/engine/experiment.hpp"
#include "fedhpc/engine/plan.hpp"
#include "fedhpc/factorisations/factor_map.hpp"
#include "fedhpc/models/model.hpp"
#include "fedhpc/training/row_optimizer.hpp"

#include "fixtures/factor_case.hpp"
#include "reference/tdpfed_reference.hpp"

namespace fedhpc::testing {
namespace {

/// dnn 8-6-4: weights [6, 8] and [4, 6].
Keys with_tdpfed(Keys changes) {
  changes.insert({{"model.rank", "3,2"}, {"algorithm.lambda", "6"}});
  return tiny_keys_of("tdpfed", changes);
}

reference::TDPFedSettings settings_of(const Keys& keys) {
  const auto value = [&](const std::string& key, const std::string& otherwise) {
    const std::string name = "algorithm." + key;
    return keys.contains(name) ? keys.at(name) : otherwise;
  };
  Keys layers = keys;
  layers.insert({"model.exclude", "none"});
  return {.factorisation = factorisation_of(layers, "cp", "raw"),
          .personal_lr = std::stod(value("personal_lr", "")),
          .lambda = std::stod(value("lambda", "")),
          .momentum = std::stod(value("momentum", "")),
          .inner_steps = std::stoll(value("inner_steps", "")),
          .factor_steps = std::stoll(value("factor_steps", "")),
          .beta = std::stod(value("beta", "1")),
          .act = value("aggregate", "afm") == "act",
          .send_tensor = value("broadcast", "factors") == "tensor",
          .fit = value("factor_solver", "adam") == "fit",
          .fit_sweeps = std::stoll(value("fit_sweeps", "10"))};
}

class TDPFedReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(TDPFedReference, EqualsPlainLoop) {
  const Keys keys = with_tdpfed(GetParam().changes);
  const reference::TDPFedSettings settings = settings_of(keys);
  reference::Problem problem = reference::make_problem(keys);
  const reference::PersonalOutcome expected = reference::tdpfed(problem, settings);
  const TinyResult result =
      expect_equals_reference(keys, expected.outcome, expected.personal, GetParam());
  problem.rounds = 0;
  EXPECT_LT(distance(result.initial, reference::tdpfed(problem, settings).outcome.global), 1e-12);
}

// Bound of float32 runs with Adam (docs/semantics.md, 5).
constexpr double kAdam = 1e-3;

INSTANTIATE_TEST_SUITE_P(
    Settings, TDPFedReference,
    ::testing::Values(
        ReferenceCase{"afm", {}, kAdam},
        ReferenceCase{"act", {{"algorithm.aggregate", "act"}}, kAdam},
        ReferenceCase{"wide_blocks", {{"train.block", "4"}}, kAdam},
        ReferenceCase{
            "act_wide_blocks", {{"algorithm.aggregate", "act"}, {"train.block", "8"}}, kAdam},
        // From a truncated decomposition gradients of units that no sample reaches are 0 but for
        // rounding, which Adam makes full steps of in float32, and 1e-9 of a step in float64.
        ReferenceCase{"act_sends_the_tensor",
                      {{"algorithm.aggregate", "act"},
                       {"algorithm.broadcast", "tensor"},
                       {"train.lr", "0.002"}},
                      20 * kAdam},
        ReferenceCase{"afm_sends_the_tensor", {{"algorithm.broadcast", "tensor"}}, kAdam},
        ReferenceCase{"act_fitted_factors",
                      {{"algorithm.aggregate", "act"}, {"algorithm.factor_solver", "fit"}},
                      kAdam},
        ReferenceCase{"beta", {{"algorithm.beta", "1.4"}}, kAdam},
        ReferenceCase{
            "act_beta", {{"algorithm.aggregate", "act"}, {"algorithm.beta", "0.7"}}, kAdam},
        ReferenceCase{"plain_steps_on_theta", {{"algorithm.momentum", "0"}}, kAdam},
        ReferenceCase{"full_batch", {{"train.batch_size", "0"}}, kAdam},
        ReferenceCase{"steps", {{"train.local_epochs", "0"}, {"train.local_steps", "6"}}, kAdam},
        ReferenceCase{"one_full_layer", {{"model.exclude", "last"}, {"model.rank", "3"}}, kAdam},
        ReferenceCase{"some_clients_uniform",
                      {{"topology.participation", "0.4"},
                       {"run.rounds", "5"},
                       {"algorithm.weighting", "uniform"}},
                      kAdam},
        ReferenceCase{
            "convolutions",
            with_batch_norm({{"model.rank", "3"}, {"model.norm", "none"}, {"train.block", "3"}}),
            kAdam},
        ReferenceCase{"batch_norm", with_batch_norm({{"model.rank", "3"}}), kAdam},
        ReferenceCase{"batch_norm_beta",
                      with_batch_norm({{"model.rank", "3"},
                                       {"algorithm.beta", "1.4"},
                                       {"topology.participation", "0.6"},
                                       {"train.block", "4"}}),
                      kAdam},
        ReferenceCase{"batch_norm_act",
                      with_batch_norm({{"model.rank", "3"},
                                       {"algorithm.aggregate", "act"},
                                       {"algorithm.beta", "0.7"},
                                       {"algorithm.fit_sweeps", "3"}}),
                      kAdam},
        // Least squares of kernels have a ridge of 1e-10 in the program.
        ReferenceCase{"batch_norm_act_fitted_factors",
                      with_batch_norm({{"model.rank", "3"},
                                       {"algorithm.aggregate", "act"},
                                       {"algorithm.factor_solver", "fit"},
                                       {"algorithm.fit_sweeps", "2"},
                                       {"train.batch_size", "0"}}),
                      kAdam, 1e-8},
        ReferenceCase{"batch_norm_sends_the_tensor",
                      with_batch_norm({{"model.rank", "3"},
                                       {"algorithm.broadcast", "tensor"},
                                       {"algorithm.inner_steps", "3"}}),
                      kAdam}),
    name_of);

TEST(TDPFed, FullRankTensorsWithExactFactorsFollowPFedMe) {
  // [[A_k]] = theta after every batch, as w_k <- w_k - eta lambda (w_k - theta) with eta lambda
  // = 1.
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  for (const std::string beta : {"1", "0.6"}) {
    const TinyResult tdpfed = run(with_tdpfed({{"model.rank", "6,4"},
                                               {"algorithm.aggregate", "act"},
                                               {"algorithm.factor_solver", "fit"},
                                               {"algorithm.lambda", "5"},
                                               {"algorithm.beta", beta}}),
                                  *comm);
    // pFedMe starts from TDPFed's initial tensor.
    const std::string path = model_file(tdpfed.initial, tiny_keys());
    const TinyResult pfedme = run(tiny_keys({{"algorithm.name", "pfedme"},
                                             {"model.init_file", path},
                                             {"algorithm.lambda", "5"},
                                             {"train.lr", "0.2"},
                                             {"algorithm.inner_steps", "2"},
                                             {"algorithm.personal_lr", "0.05"},
                                             {"train.optimizer", "nesterov"},
                                             {"train.momentum", "0.5"},
                                             {"algorithm.beta", beta}}),
                                  *comm);
    EXPECT_TRUE(pfedme.initial.equal(tdpfed.initial));
    EXPECT_GT(distance(tdpfed.global, tdpfed.initial), 1e-2);
    EXPECT_LT(distance(tdpfed.global, pfedme.global), 1e-9);
    EXPECT_LT(distance(tdpfed.personal, pfedme.personal), 1e-9);
  }
}

TEST(TDPFed, FactorsOfAFixedTensorDoNotDependOnLambda) {
  // Adam's steps do not depend on the length of a gradient: lambda acts through theta only.
  ModelOptions model;
  const LayoutPtr full = make_model(model, {5, 6}, 4)->layout();
  FactorisationOptions options;
  options.name = "cp";
  options.exclude = {};
  FactorMap map(options, full);
  const Rows theta{at::randn({1, full->size()}, at::kDouble), full};
  const Rows start{at::randn({1, map.factors()->size()}, at::kDouble), map.factors()};
  const auto follow = [&](double lambda) {
    const Rows factors = start.clone();
    const Rows gradient = start.clone();
    RowOptimizer adam({.kind = OptimizerKind::Adam, .lr = 8e-4}, map.factors());
    adam.reset(factors.values);
    for (int i = 0; i < 23 * 17; ++i) {
      map.pullback_(factors, lambda * (map.expand(factors) - theta), gradient);
      adam.step_(factors.values, gradient.values);
    }
    return factors.values;
  };
  const Tensor expected = follow(12);
  EXPECT_GT(distance(expected, start.values), 1e-2);
  for (const double lambda : {8.0, 18.0}) EXPECT_LT(distance(follow(lambda), expected), 1e-6);
}

TEST(TDPFed, OfOneClientBothAggregationsAreTheSame) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const auto run_with = [&](const std::string& aggregate) {
    Keys keys = with_tdpfed({{"data.partition", "iid"},
                             {"data.clients", "1"},
                             {"run.rounds", "1"},
                             {"algorithm.aggregate", aggregate}});
    keys.erase("data.partition_file");
    return run(keys, *comm);
  };
  // After one round; then Adam starts from other factors of the same tensor.
  const TinyResult afm = run_with("afm");
  const TinyResult act = run_with("act");
  EXPECT_GT(distance(afm.global, afm.initial), 1e-3);
  EXPECT_LT(distance(act.global, afm.global), 1e-12);
}

TEST(TDPFed, BetaZeroKeepsTheFactors) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const TinyResult result = run(with_tdpfed({{"algorithm.beta", "0"}}), *comm);
  EXPECT_TRUE(result.global.equal(result.initial));
  EXPECT_GT(distance(result.personal, result.initial.repeat({7})), 1e-2);
}

TEST(TDPFed, SendsFactorsOnly) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  // fc1 [6, 8] at rank 3, fc2 [4, 6] at rank 2, and their biases.
  const double factors = 8 * (3 * (6 + 8) + 2 * (4 + 6) + 6 + 4);
  const double tensor = 8 * (6 * 8 + 4 * 6 + 6 + 4);
  const TinyResult plain = run(with_tdpfed({}), *comm);
  const TinyResult both = run(with_tdpfed({{"algorithm.broadcast", "tensor"}}), *comm);
  if (comm->rank() != 0) return;
  for (std::size_t t = 0; t < plain.metrics.size(); ++t) {
    EXPECT_EQ(plain.metrics[t].bytes_up_client_cloud, 7 * factors);
    EXPECT_EQ(plain.metrics[t].bytes_down_client_cloud, 7 * factors);
    EXPECT_EQ(both.metrics[t].bytes_up_client_cloud, 7 * factors);
    EXPECT_EQ(both.metrics[t].bytes_down_client_cloud, 7 * (factors + tensor));
  }
}

TEST(TDPFed, BooksThePayloadsOfTableI) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const auto booked = [&](const std::string& rate) {
    Keys keys = tiny_keys_of("tdpfed", {{"data.name", "glyphs"},
                                        {"data.partition", "iid"},
                                        {"model.hidden", "100"},
                                        {"model.compression", rate},
                                        {"run.dtype", "float32"}});
    keys.erase("data.partition_file");
    return plan(keys, *comm).up_per_client;
  };
  EXPECT_EQ(booked("2"), 4 * (39446 + 110));
  EXPECT_EQ(booked("1.5"), 4 * (52816 + 110));
}

TEST(TDPFed, RecordsErrorsAndNorms) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const TinyResult rough = run(with_tdpfed({{"model.rank", "1"}}), *comm);
  const TinyResult exact =
      run(with_tdpfed({{"model.rank", "6,4"}, {"algorithm.factor_solver", "fit"}}), *comm);
  if (comm->rank() != 0) return;
  for (std::size_t t = 0; t < rough.metrics.size(); ++t) {
    ASSERT_EQ(rough.metrics[t].own.size(), 5U);  // the error, four factors
    EXPECT_GT(rough.metrics[t].own[0], 1e-2);
    EXPECT_LT(exact.metrics[t].own[0], 1e-12);
    for (std::size_t m = 1; m < 5; ++m) EXPECT_GT(rough.metrics[t].own[m], 0.1);
  }
}

TEST(TDPFed, KernelsAreFittedInAsManySweepsAsAsked) {
  // One client and one step: theta, the factors fitted to it, and the server's fitted to their
  // tensor.
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  std::vector<Tensor> globals;
  for (const std::int64_t sweeps : {1, 3}) {
    Keys keys =
        tiny_keys_of("tdpfed", with_batch_norm({{"data.partition", "iid"},
                                                {"data.clients", "1"},
                                                {"run.rounds", "1"},
                                                {"train.batch_size", "0"},
                                                {"model.rank", "3"},
                                                {"algorithm.aggregate", "act"},
                                                {"algorithm.factor_solver", "fit"},
                                                {"algorithm.fit_sweeps", std::to_string(sweeps)}}));
    keys.erase("data.partition_file");
    Config config(assignments_of(keys), "tiny.ini");
    Experiment experiment(config, *comm);
    const Rows start = experiment.parts().initial_factors.clone();
    experiment.run([](const RoundReport&) {});
    TinyResult result;
    note_models(experiment, *comm, result);
    FactorMap& map = *experiment.parts().factor_map;
    const auto model = [&](const Tensor& row) { return Rows{row.unsqueeze(0), map.full()}; };
    const Rows sent = map.fit(model(result.personal), start, sweeps);
    EXPECT_LT(distance(result.global, map.expand(sent).values.squeeze(0)), 1e-9) << sweeps;
    const Rows kept = map.fit(model(result.global), start, sweeps);
    EXPECT_LT(distance(experiment.last_evaluated().factors.values, kept.values), 1e-9) << sweeps;
    globals.push_back(result.global);
  }
  EXPECT_GT(distance(globals[0], globals[1]), 1e-5);
}

TEST(TDPFed, RefusesRulesItDoesNotTrainBy) {
  for (const auto& [key, value] : Keys{{"train.optimizer", "adam"},
                                       {"train.weight_decay", "0.1"},
                                       {"model.factorisation", "none"}}) {
    EXPECT_TRUE(refuses_on_command_line(with_tdpfed({{key, value}}))) << key;
  }
  EXPECT_TRUE(refuses_on_command_line(tiny_keys({{"model.factorisation", "cp"}})))
      << "FedAvg has no factors";
  EXPECT_TRUE(refuses_on_command_line(tiny_keys({{"model.compression", "3"}})));
  EXPECT_TRUE(refuses_on_command_line(with_tdpfed({{"model.compression", "3"}})))
      << "rank and rate at one level";
}

}  // namespace
}  // namespace fedhpc::testing
