#include "fedhpc/algorithms/fedala.hpp"

#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/reference_case.hpp"
#include "fixtures/resumed_run.hpp"
#include "reference/fedala_reference.hpp"

namespace fedhpc::testing {
namespace {

Keys with_fedala(Keys changes = {}) {
  changes.insert({"algorithm.name", "fedala"});
  return tiny_keys(changes);
}

reference::FedALAOutcome expected_of(const Keys& keys) {
  return reference::fedala(reference::make_problem(keys),
                           {.layers = std::stoll(own_value(keys, "layers", "1")),
                            .share = std::stod(own_value(keys, "share", "0.8")),
                            .weight_lr = std::stod(own_value(keys, "weight_lr", "1")),
                            .start_passes = std::stoll(own_value(keys, "start_passes", "20")),
                            .tolerance = std::stod(own_value(keys, "tolerance", "0.001")),
                            .learn_all = own_value(keys, "learn", "") == "all",
                            .watches_losses = own_value(keys, "start_rule", "") == "losses",
                            .slice = own_value(keys, "samples", "") == "slice"});
}

/// NaN where the other is.
void expect_series(const std::vector<double>& actual, const std::vector<double>& expected,
                   const std::string& name) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t t = 0; t < actual.size(); ++t) {
    EXPECT_EQ(std::isnan(actual[t]), std::isnan(expected[t])) << name << ", round " << t + 1;
    if (std::isnan(expected[t])) continue;
    EXPECT_NEAR(actual[t], expected[t], 1e-10) << name << ", round " << t + 1;
  }
}

class FedALAReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(FedALAReference, EqualsPlainLoop) {
  const Keys keys = with_fedala(GetParam().changes);
  const reference::FedALAOutcome expected = expected_of(keys);
  ASSERT_LT(expected.global_weight.back(), 0.999) << "clients mix";
  ASSERT_GT(expected.global_weight.back(), 0.001);
  const TinyResult result =
      expect_equals_reference(keys, expected.outcome, expected.personal, GetParam());
  EXPECT_GT(distance(result.personal, result.global.repeat({7})), 1e-3) << "models differ";
  if (world_communicator(60)->rank() != 0) return;
  expect_series(own_series(keys, result, "reception_accuracy"), expected.reception_accuracy,
                "reception_accuracy");
  expect_series(own_series(keys, result, "global_weight"), expected.global_weight, "global_weight");
  expect_series(own_series(keys, result, "start_passes"), expected.start_passes, "start_passes");
}

INSTANTIATE_TEST_SUITE_P(Settings, FedALAReference, ::testing::ValuesIn(all_cases()), name_of);

INSTANTIATE_TEST_SUITE_P(
    Own, FedALAReference,
    ::testing::Values(
        ReferenceCase{"all_layers", {{"algorithm.layers", "9"}, {"train.block", "3"}}},
        ReferenceCase{"all_samples", {{"algorithm.share", "1"}}},
        ReferenceCase{"few_samples",
                      {{"algorithm.share", "0.3"}, {"run.rounds", "5"}, {"train.block", "4"}}},
        ReferenceCase{"share_of_a_full_batch",
                      {{"train.batch_size", "0"}, {"algorithm.share", "0.5"}}},
        ReferenceCase{"small_steps", {{"algorithm.weight_lr", "0.3"}}},
        ReferenceCase{"one_pass", {{"algorithm.start_passes", "1"}, {"run.rounds", "4"}}},
        ReferenceCase{"all_passes",
                      {{"algorithm.tolerance", "0"}, {"algorithm.start_passes", "6"}}},
        ReferenceCase{"loose", {{"algorithm.tolerance", "0.1"}, {"train.block", "8"}}},
        ReferenceCase{"batch_norm_two_layers",
                      with_batch_norm({{"algorithm.layers", "2"}, {"train.block", "4"}}),
                      kBatchNormBound},
        ReferenceCase{"batch_norm_all_layers", with_batch_norm({{"algorithm.layers", "99"}}),
                      kBatchNormBound}),
    name_of);

Keys authors_rules(Keys changes) {
  changes.insert({{"algorithm.learn", "all"},
                  {"algorithm.start_rule", "losses"},
                  {"algorithm.tolerance", "0.1"},
                  {"algorithm.start_passes", "40"},
                  {"algorithm.samples", "slice"},
                  {"topology.participation", "0.4"},
                  {"run.rounds", "4"}});
  return changes;
}

INSTANTIATE_TEST_SUITE_P(
    Authors, FedALAReference,
    ::testing::Values(
        ReferenceCase{"all_learn",
                      {{"algorithm.learn", "all"},
                       {"topology.participation", "0.4"},
                       {"train.block", "3"},
                       {"run.rounds", "5"}}},
        ReferenceCase{"all_learn_and_all_take_part", {{"algorithm.learn", "all"}}},
        ReferenceCase{"losses",
                      {{"algorithm.start_rule", "losses"}, {"algorithm.tolerance", "0.1"}}},
        ReferenceCase{"close_losses",
                      {{"algorithm.start_rule", "losses"},
                       {"algorithm.tolerance", "0.002"},
                       {"algorithm.start_passes", "30"}}},
        ReferenceCase{"slice", {{"algorithm.samples", "slice"}, {"algorithm.share", "0.55"}}},
        ReferenceCase{"slice_of_a_full_batch",
                      {{"algorithm.samples", "slice"}, {"train.batch_size", "0"}}},
        ReferenceCase{"all_of_theirs", authors_rules({})},
        ReferenceCase{"all_of_theirs_batch_norm", with_batch_norm(authors_rules({})),
                      kBatchNormBound}),
    name_of);

TEST(FedALA, WhereAllLearnARoundMayBeLeft) {
  const auto world = world_communicator(60);
  Keys keys = with_fedala({{"algorithm.learn", "all"},
                           {"topology.participation", "0.6"},
                           {"train.block", "1"},
                           {"run.rounds", "4"},
                           {"run.grace_seconds", "0"}});
  int left = 0;
  const TinyResult parts = run_left_in_rounds(keys, *world, left);
  const TinyResult whole = run(keys, *world);
  EXPECT_GT(left, 0);
  EXPECT_TRUE(parts.global.equal(whole.global));
  EXPECT_TRUE(parts.personal.equal(whole.personal));
}

TEST(FedALA, WhereAllLearnAbsentClientsReceiveAndDoNotSend) {
  const auto world = world_communicator(60);
  const Keys some{{"topology.participation", "0.4"}};
  Keys everybody = some;
  everybody["algorithm.learn"] = "all";
  const TinyResult participants = run(with_fedala(some), *world);
  const TinyResult all = run(with_fedala(everybody), *world);
  if (world->rank() != 0) return;
  for (std::size_t t = 0; t < all.metrics.size(); ++t) {
    EXPECT_EQ(bytes_up(all.metrics[t]), bytes_up(participants.metrics[t]));
    const double receivers = t == 0 ? 3 : 7;
    EXPECT_EQ(bytes_down(all.metrics[t]), bytes_down(participants.metrics[t]) / 3 * receivers);
  }
}

TEST(FedALA, WeightsThatStayOneAreFedAvgsBitForBit) {
  const auto world = world_communicator(60);
  // At home: where a client is trained depends on what a method keeps of it, and sums on that.
  for (Keys setting :
       {Keys{{"algorithm.layers", "2"}}, with_batch_norm({{"topology.participation", "0.6"}}),
        Keys{{"run.dtype", "float32"}, {"train.momentum", "0.5"}, {"train.block", "4"}}}) {
    setting["topology.placement"] = "home";
    Keys plain = setting;
    plain.erase("algorithm.layers");
    const TinyResult fedavg = run(tiny_keys(plain), *world);
    Keys frozen = setting;
    frozen["algorithm.weight_lr"] = "0";
    const TinyResult fedala = run(with_fedala(frozen), *world);
    EXPECT_TRUE(fedala.global.equal(fedavg.global));
    EXPECT_TRUE(fedala.personal.equal(fedala.global.repeat({7})));
    EXPECT_GT(distance(run(with_fedala(setting), *world).global, fedavg.global), 1e-4);
    if (world->rank() != 0) continue;
    for (std::size_t t = 0; t < fedavg.metrics.size(); ++t) {
      EXPECT_EQ(fedala.metrics[t].train_loss, fedavg.metrics[t].train_loss);
      EXPECT_EQ(fedala.metrics[t].global_accuracy, fedavg.metrics[t].global_accuracy);
      EXPECT_EQ(bytes_up(fedala.metrics[t]), bytes_up(fedavg.metrics[t]));
      EXPECT_EQ(bytes_down(fedala.metrics[t]), bytes_down(fedavg.metrics[t]));
    }
  }
}

TEST(FedALA, TheFirstRoundIsFedAvgs) {
  const auto world = world_communicator(60);
  const Keys one{{"run.rounds", "1"}};
  EXPECT_TRUE(run(with_fedala(one), *world).global.equal(run(tiny_keys(one), *world).global));
}

TEST(FedALA, WhoHasNotLearnedWeightsTakesTheGlobalModel) {
  const auto world = world_communicator(60);
  const TinyResult result =
      run(with_fedala({{"topology.participation", "0.4"}, {"run.rounds", "4"}}), *world);
  std::vector<int> times(7, 0);
  for (const auto& cohort : result.cohorts) {
    for (const std::int64_t client : cohort) ++times[static_cast<std::size_t>(client)];
  }
  times[3] = 0;  // no training sample
  const Tensor personal = result.personal.reshape({7, -1});
  int mixing = 0;
  for (std::size_t k = 0; k < 7; ++k) {
    EXPECT_EQ(personal[static_cast<std::int64_t>(k)].equal(result.global), times[k] < 2) << k;
    mixing += times[k] >= 2 ? 1 : 0;
  }
  EXPECT_GT(mixing, 0);
  EXPECT_LT(mixing, 6);
}

TEST(FedALA, BelowTheTopLayersOwnModelsAreTheGlobalOne) {
  const auto world = world_communicator(60);
  const TinyResult result = run(with_fedala(), *world);
  const std::int64_t body = 8 * 6 + 6;  // of dnn 8-6-4
  const Tensor personal = result.personal.reshape({7, -1});
  for (std::int64_t k = 0; k < 7; ++k) {
    EXPECT_TRUE(personal[k].narrow(0, 0, body).equal(result.global.narrow(0, 0, body))) << k;
  }
}

TEST(FedALA, WeightsAreSharesOfTheGlobalModel) {
  for (const Keys& setting : {Keys{}, Keys{{"algorithm.weight_lr", "50"}}}) {
    const Keys keys = with_fedala(setting);
    const reference::FedALAOutcome outcome = expected_of(keys);
    for (const Tensor& weights : outcome.weights) {
      if (!weights.defined()) continue;
      EXPECT_GE(weights.min().item<double>(), 0);
      EXPECT_LE(weights.max().item<double>(), 1);
    }
    const TinyResult result = run(keys, *world_communicator(60));
    EXPECT_LT(distance(result.personal, flatten_all(outcome.personal)), 1e-9);
  }
}

TEST(FedALA, CountsALayerWithItsBiasAndBatchNorm) {
  const auto name_of_first = [](const std::string& model, std::int64_t layers) -> std::string {
    ModelOptions options;
    options.name = model;
    const std::unique_ptr<Model> made = make_model(options, {3, 32, 32}, 10);
    const Layout& layout = *made->layout();
    const std::size_t first = first_of_top(layout, layers);
    const RowPart top(made->layout(), first, {.with = Tag::Trainable});
    if (layers == 1) {  // gradients are then taken of the columns of the classifier
      EXPECT_EQ(top.layout()->size(), layout.count(Tag::Head)) << model;
      EXPECT_EQ(top.layout()->count(Tag::Head), layout.count(Tag::Head)) << model;
    }
    return layout.fields().at(first).name;
  };
  EXPECT_EQ(name_of_first("dnn", 1), "fc2.weight");
  EXPECT_EQ(name_of_first("dnn", 2), "fc1.weight");
  EXPECT_EQ(name_of_first("dnn", 3), "fc1.weight");
  EXPECT_EQ(name_of_first("cnn4", 2), "conv4.weight");
  EXPECT_EQ(name_of_first("cnn4", 5), "conv1.weight");
  for (const std::string model : {"mlr", "cnn4", "cnn8", "resnet9", "resnet18"}) {
    name_of_first(model, 1);
    EXPECT_EQ(name_of_first(model, 1000), model == "mlr" ? "fc1.weight" : "conv1.weight") << model;
  }
}

TEST(FedALA, TimeOnTheNetworkCountsThePassesOfTheWeights) {
  // Client 6 has 30 samples: 15 full-batch steps, then as many and one pass of each round.
  const auto world = world_communicator(60);
  const TinyResult result = run(with_fedala({{"train.batch_size", "0"},
                                             {"train.local_epochs", "15"},
                                             {"algorithm.tolerance", "0"},
                                             {"algorithm.start_passes", "4"},
                                             {"network.client_cloud_mbps", "2"},
                                             {"network.step_seconds", "0.25"}}),
                                *world);
  if (world->rank() != 0) return;
  const double transfers = result.metrics[0].simulated_seconds - 15 * 0.25;
  EXPECT_GT(transfers, 0);
  EXPECT_NEAR(result.metrics[1].simulated_seconds, transfers + 19 * 0.25, 1e-9);
  EXPECT_NEAR(result.metrics[2].simulated_seconds, transfers + 16 * 0.25, 1e-9);
}

}  // namespace
}  // namespace fedhpc::testing
