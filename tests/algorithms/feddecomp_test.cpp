#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/factor_case.hpp"
#include "fixtures/resumed_run.hpp"
#include "reference/feddecomp_reference.hpp"

namespace fedhpc::testing {
namespace {

Keys with_feddecomp(Keys changes = {}) {
  changes.insert({{"algorithm.shared_passes", "2"}});
  return with_factors("feddecomp", changes);
}

reference::FedDecompOutcome expected_of(const Keys& keys, reference::Link* link = nullptr) {
  Keys all = keys;
  all.insert({"model.exclude", "none"});
  reference::FactorisationSettings factorisation = factorisation_of(all, "lora", "raw");
  factorisation.alpha = std::stod(value_or(keys, "model.lora_alpha", "0"));
  return reference::feddecomp(
      reference::make_problem(keys),
      {.factorisation = factorisation,
       .range = std::stod(own_value(keys, "init_range", "1")),
       .personal_passes = std::stoll(own_value(keys, "personal_passes", "2")),
       .shared_passes = std::stoll(own_value(keys, "shared_passes", "3"))},
      link);
}

/// Models [N, P] less the shared one [P].
Tensor apart(const TinyResult& result) {
  return result.personal.reshape({7, -1}).sub(result.global);
}

class FedDecompReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(FedDecompReference, EqualsPlainLoop) {
  const Keys keys = with_feddecomp(GetParam().changes);
  const reference::FedDecompOutcome expected = expected_of(keys);
  const TinyResult result =
      expect_equals_reference(keys, expected.outcome, expected.personal, GetParam());
  EXPECT_GT(apart(result).norm().item<double>(), 1e-3) << "clients have something of their own";
}

INSTANTIATE_TEST_SUITE_P(Settings, FedDecompReference, ::testing::ValuesIn(all_cases()), name_of);
INSTANTIATE_TEST_SUITE_P(FallingRate, FedDecompReference, ::testing::ValuesIn(falling_lr_cases()),
                         name_of);

const Keys kMomentum{
    {"train.optimizer", "momentum"}, {"train.momentum", "0.5"}, {"train.weight_decay", "0.05"}};

INSTANTIATE_TEST_SUITE_P(
    Parts, FedDecompReference,
    ::testing::Values(
        ReferenceCase{"ranks", {{"model.rank", "1,2,3,4"}, {"model.lora_alpha", "8"}}},
        ReferenceCase{"one_pass_each",
                      {{"algorithm.personal_passes", "1"}, {"algorithm.shared_passes", "1"}}},
        ReferenceCase{"some_layers", {{"model.exclude", "first,last"}, {"train.block", "4"}}},
        ReferenceCase{"optimizers_go_on", kMomentum},
        ReferenceCase{"adam_goes_on",
                      {{"train.optimizer", "adam"}, {"train.lr", "0.01"}, {"train.block", "3"}},
                      kAdamBound},
        ReferenceCase{"batch_norm_momentum", with_batch_norm(kMomentum), kBatchNormBound},
        ReferenceCase{"permuted",
                      with_batch_norm({{"model.conv_view", "permuted"}, {"model.rank", "2"}}),
                      kBatchNormBound}),
    name_of);

TEST(FedDecomp, TrainsWithTheSharedPartThatHasArrived) {
  const Keys keys = with_feddecomp({{"algorithm.codec", "top_k"},
                                    {"algorithm.downlink_codec", "top_k"},
                                    {"algorithm.codec_fraction", "0.25"},
                                    {"algorithm.error_feedback", "ef21"},
                                    {"topology.participation", "0.6"},
                                    {"run.rounds", "6"}});
  const reference::Problem problem = reference::make_problem(keys);
  const Tensor initial = reference::flatten(problem.initial);
  const std::int64_t k = (initial.numel() + 2) / 4;
  reference::Link link(problem, initial,
                       {.k = k, .feedback = reference::Feedback::Ef21, .k_down = k});
  const reference::FedDecompOutcome expected = expected_of(keys, &link);
  const TinyResult result = expect_equals_reference(keys, expected.outcome, 1e-5);
  EXPECT_LT(distance(result.personal, flatten_all(expected.personal)), 1e-9);
}

TEST(FedDecomp, WithNothingOfTheirOwnItIsFedAvgBitForBit) {
  const auto world = world_communicator(60);
  std::vector<Keys> settings = limit_settings();
  settings.push_back(with_batch_norm({{"topology.placement", "home"}, {"train.block", "3"}}));
  settings.push_back({{"topology.placement", "home"},
                      {"algorithm.codec", "fp16"},
                      {"server.optimizer", "momentum"}});
  for (Keys setting : settings) {
    setting["model.hidden"] = "9,7,5";
    const TinyResult fedavg = run(tiny_keys(setting), *world);
    setting["algorithm.personal_passes"] = "0";
    setting["algorithm.shared_passes"] = "1";
    const TinyResult result = run(with_feddecomp(setting), *world);
    EXPECT_TRUE(result.global.equal(fedavg.global));
    EXPECT_TRUE(apart(result).eq(0).all().item<bool>());
    if (world->rank() != 0) continue;
    EXPECT_EQ(result.metrics.back().train_loss, fedavg.metrics.back().train_loss);
    EXPECT_EQ(bytes_up(result.metrics.back()), bytes_up(fedavg.metrics.back()));
    EXPECT_EQ(bytes_down(result.metrics.back()), bytes_down(fedavg.metrics.back()));
  }
}

TEST(FedDecomp, WhatIsTheirOwnHasTheRankAndLeavesBiasesAlone) {
  const auto world = world_communicator(60);
  const Keys keys = with_feddecomp({{"model.rank", "2"}, {"topology.participation", "0.6"}});
  const TinyResult result = run(keys, *world);
  const std::vector<bool> trained = have_trained(result);
  const Tensor own = apart(result);
  const reference::Problem problem = reference::make_problem(keys);
  for (std::int64_t k = 0; k < 7; ++k) {
    for (const Field& field : problem.layout->fields()) {
      const Tensor part = own[k].narrow(0, field.offset, field.size);
      const bool moves = trained[static_cast<std::size_t>(k)] && field.shape.size() == 2;
      EXPECT_EQ(part.norm().item<double>() > 1e-6, moves) << field.name << " of " << k;
      if (!moves) continue;
      const Tensor singular = std::get<1>(part.view(field.shape).svd());
      // One sample, which is all that client 2 has, may leave less.
      EXPECT_TRUE(k == 2 || singular[1].item<double>() > 1e-8) << field.name << " of " << k;
      EXPECT_LT(singular[2].item<double>(), 1e-13) << field.name;
    }
  }
}

TEST(FedDecomp, SendsWhatFedAvgSends) {
  const auto world = world_communicator(60);
  const Keys setting{{"topology.participation", "0.6"}, {"model.hidden", "9,7,5"}};
  const TinyResult fedavg = run(tiny_keys(setting), *world);
  const TinyResult result = run(with_feddecomp(setting), *world);
  if (world->rank() != 0) return;
  EXPECT_EQ(bytes_up(result.metrics.back()), bytes_up(fedavg.metrics.back()));
  EXPECT_EQ(bytes_down(result.metrics.back()), bytes_down(fedavg.metrics.back()));
}

TEST(FedDecomp, ResumesAndIsTheSameOnAnyRanks) {
  for (const std::string dtype : {"float64", "float32"}) {
    const Keys keys = with_feddecomp(with_batch_norm({{"run.dtype", dtype},
                                                      {"run.reproducible", "true"},
                                                      {"run.rounds", "4"},
                                                      {"topology.participation", "0.8"}}));
    expect_same_bits_on_ranks(keys, {keys.at("train.block")});
    expect_goes_on(keys, {2});
  }
}

}  // namespace
}  // namespace fedhpc::testing
