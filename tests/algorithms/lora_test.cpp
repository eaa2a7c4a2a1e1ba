#include <string>

#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"
#include "fedhpc/engine/experiment.hpp"
#include "fedhpc/engine/model_record.hpp"
#include "fedhpc/io/hdf5.hpp"

#include "fixtures/factor_case.hpp"
#include "fixtures/resumed_run.hpp"
#include "reference/lora_reference.hpp"

namespace fedhpc::testing {
namespace {

Keys with_lora(const Keys& changes = {}) { return with_factors("lora", changes); }

Columns passed_of(const Keys& keys) {
  const std::string rest = own_value(keys, "rest", "head");
  if (rest == "head") return {.with = Tag::Head};
  if (rest == "frozen") return {.without = Tag::Trainable | Tag::Buffer};
  return {};
}

reference::FactorOutcome lora_of(const Keys& keys, const reference::Problem& problem) {
  Keys excluded = keys;
  excluded.insert({"model.exclude", "last"});
  reference::FactorisationSettings settings = factorisation_of(excluded, "lora", "raw");
  settings.alpha = std::stod(value_or(keys, "model.lora_alpha", "0"));
  settings.passed = passed_of(keys);
  return reference::lora(problem, settings, std::stod(own_value(keys, "init_range", "1")));
}

class LoRAReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(LoRAReference, EqualsPlainLoop) {
  const Keys keys = with_lora(GetParam().changes);
  const reference::FactorOutcome expected = lora_of(keys, reference::make_problem(keys));
  ASSERT_GT(expected.layers.size(), 0U);
  const TinyResult result =
      expect_equals_reference(keys, expected.outcome, GetParam().single_bound);
  EXPECT_TRUE(result.initial.equal(reference::flatten(reference::make_problem(keys).initial)))
      << "B = 0: the base";
  if (world_communicator(60)->rank() != 0) return;
  expect_factor_series(keys, result, expected);
  expect_rows_of_factors(result, expected.row_size, 8);
}

/// The settings of all methods, with factorisations, what else is trained, and alpha in turn.
std::vector<ReferenceCase> settings() {
  std::vector<ReferenceCase> cases = all_cases();
  std::size_t next = 0;
  for (ReferenceCase& one : cases) {
    one.changes["model.factorisation"] = next % 2 == 0 ? "lora" : "ffa_lora";
    one.changes["algorithm.rest"] = std::vector<std::string>{"head", "frozen", "all"}[next % 3];
    if (next % 5 == 0) one.changes["model.lora_alpha"] = "3";
    ++next;
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Settings, LoRAReference, ::testing::ValuesIn(settings()), name_of);

std::vector<ReferenceCase> adapters() {
  std::vector<ReferenceCase> cases;
  for (const std::string name : {"lora", "ffa_lora"}) {
    const auto add = [&](const std::string& setting, Keys changes, double bound = 1e-5) {
      changes["model.factorisation"] = name;
      cases.push_back({name + "_" + setting, changes, bound});
    };
    add("ranks", {{"model.rank", "2,4"}, {"model.exclude", "fc1,fc4"}, {"model.lora_alpha", "8"}});
    add("everywhere", {{"model.exclude", "none"}, {"train.block", "auto"}});
    add("rank_above_the_sides", {{"model.rank", "12"}, {"algorithm.init_range", "0.5"}});
    add("whole_model", {{"model.compression", "3"}, {"model.compression_scope", "model"}});
    add("convolutions_head", with_batch_norm({{"train.block", "3"}}), kBatchNormBound);
    add("convolutions_all",
        with_batch_norm({{"algorithm.rest", "all"}, {"model.conv_view", "permuted"}}),
        kBatchNormBound);
    add("decayed", {{"algorithm.rest", "all"},
                    {"train.momentum", "0.5"},
                    {"train.optimizer", "momentum"},
                    {"train.weight_decay", "0.05"}});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Adapters, LoRAReference, ::testing::ValuesIn(adapters()), name_of);

/// The columns of the model that no adapter and no head gives, in `row` [P].
Tensor frozen_in(const Tensor& row, const Keys& keys, Tag others) {
  const reference::Problem problem = reference::make_problem(keys);
  std::vector<Tensor> parts;
  for (const Field& field : problem.layout->fields()) {
    const bool adapted = field.shape.size() >= 2 && !has(field.tags, Tag::Head);
    if (adapted || has(field.tags, others)) continue;
    parts.push_back(row.narrow(0, field.offset, field.size));
  }
  return at::cat(parts);
}

TEST(LoRA, WhatIsFrozenStaysToTheLastBitAndDoesNotTravel) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  for (const std::string rest : {"frozen", "head"}) {
    const Keys keys = with_lora(with_batch_norm({{"algorithm.rest", rest},
                                                 {"model.rank", "2"},
                                                 {"train.optimizer", "momentum"},
                                                 {"train.momentum", "0.5"},
                                                 {"train.weight_decay", "0.1"}}));
    const TinyResult result = run(keys, *comm);
    const Tag trained = rest == "head" ? Tag::Head : Tag::None;
    const Tensor before = frozen_in(result.initial, keys, trained);
    EXPECT_GT(before.numel(), 0);
    EXPECT_TRUE(frozen_in(result.global, keys, trained).equal(before)) << rest;
    EXPECT_GT(distance(result.global, result.initial), 1e-3);
    if (comm->rank() != 0) continue;
    // conv1 12 x 3, conv2 24 x 12 in the raw view; the head 4 x 32.
    const std::int64_t head = rest == "head" ? 4 * 32 : 0;
    expect_rows_of_factors(result, 2 * (12 + 3) + 2 * (24 + 12) + head, 8);
  }
}

TEST(LoRA, OnlyTheProductOfTwoMeansHasAGap) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  for (const std::string name : {"lora", "ffa_lora"}) {
    for (const std::string participation : {"0.1", "1"}) {
      const Keys keys =
          with_lora({{"model.factorisation", name}, {"topology.participation", participation}});
      const TinyResult result = run(keys, *comm);
      if (comm->rank() != 0) continue;
      for (const double gap : own_series(keys, result, "aggregation_gap")) {
        EXPECT_EQ(gap > 1e-8, name == "lora" && participation == "1") << name << gap;
        EXPECT_TRUE(gap < 1e-14 || gap > 1e-8) << name << gap;
      }
    }
  }
}

TEST(LoRA, GoesOnAfterAnyRound) {
  for (const std::string name : {"lora", "ffa_lora"}) {
    const Keys keys = with_lora(
        {{"model.factorisation", name}, {"run.rounds", "4"}, {"topology.participation", "0.5"}});
    expect_goes_on(keys, {1, 3});
  }
}

TEST(LoRA, SameBitsOnAnyRanksAndWidthsWhenReproducible) {
  for (const std::string name : {"lora", "ffa_lora"}) {
    for (const std::string rest : {"frozen", "head", "all"}) {
      Keys keys = with_lora(with_batch_norm({{"run.dtype", "float32"},
                                             {"model.factorisation", name},
                                             {"algorithm.rest", rest},
                                             {"topology.participation", "0.8"},
                                             {"run.reproducible", "true"}}));
      expect_same_bits_on_ranks(keys, {"1", "3"});
    }
  }
}

TEST(LoRA, OwnStatisticsTravelNowhere) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  Keys keys = with_lora(with_batch_norm({{"algorithm.rest", "all"}, {"train.buffers", "local"}}));
  const TinyResult result = run(keys, *comm);
  EXPECT_TRUE(result.global.isfinite().all().item<bool>());
  EXPECT_GT(distance(result.global, result.initial), 1e-3);
  keys["algorithm.rest"] = "head";
  EXPECT_TRUE(refuses_on_command_line(keys)) << "they stay the base's";
}

TEST(LoRA, TakesTheModelOfAFileAndNothingOfItsFactors) {
  const std::unique_ptr<Communicator> world = world_communicator(60);
  Keys keys =
      with_lora({{"algorithm.downlink_codec", "top_k"}, {"algorithm.codec_fraction", "0.1"}});
  const Tensor base = run(keys, *world).global;
  keys["model.init_file"] = model_file(base, with_lora());
  const TinyResult expected = run(keys, *world);
  {
    // Factors of another run, and of another rank.
    const h5::Handle file = h5::open_file(keys["model.init_file"], h5::Mode::ReadWrite);
    const reference::Problem problem = reference::make_problem(keys);
    Config config(assignments_of(keys), "tiny.ini");
    const Experiment experiment(config, *local_communicator());
    const LayoutPtr& factors = experiment.parts().factor_map->factors();
    const Rows other{at::full({1, factors->size()}, 3, at::kDouble), factors};
    write_parameters(file, "/model/factors", parameters_of(other));
  }
  expect_same_bits(run(keys, *world), expected, *world);
  keys["model.rank"] = "1";
  EXPECT_FALSE(refuses_to_run(keys));
}

TEST(LoRA, RefusesWhatDoesNotFit) {
  EXPECT_FALSE(refuses_to_run(with_lora()));
  for (const auto& [key, value] : Keys{{"model.factorisation", "low_rank"},
                                       {"model.lora_alpha", "0"},
                                       {"model.exclude", "fc*"},
                                       {"model.exclude ", "conv*"},
                                       {"algorithm.init_range", "0"},
                                       {"algorithm.rest", "bias"},
                                       {"model.rank", "0"}}) {
    Keys keys;
    keys[key.substr(0, key.find(' '))] = value;
    EXPECT_TRUE(refuses_to_run(with_lora(keys))) << key << " = " << value;
  }
  EXPECT_TRUE(refuses_on_command_line(with_factors("fedlmt", {{"model.lora_alpha", "2"}})));
}

}  // namespace
}  // namespace fedhpc::testing
