#include <cmath>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "fedhpc/algorithms/binary_update.hpp"
#include "fedhpc/comm/session.hpp"

#include "fixtures/factor_case.hpp"
#include "fixtures/resumed_run.hpp"
#include "reference/fedbat_reference.hpp"

namespace fedhpc::testing {
namespace {

Keys with_fedbat(Keys changes = {}) {
  changes.insert({"algorithm.name", "fedbat"});
  return tiny_keys(changes);
}

reference::FedBATOutcome expected_of(const Keys& keys) {
  return reference::fedbat(reference::make_problem(keys),
                           {.warm_up = std::stod(own_value(keys, "warm_up", "0.5")),
                            .step_rate = std::stod(own_value(keys, "step_rate", "6")),
                            .least_step = std::stod(own_value(keys, "least_step", "5e-4")),
                            .most_step = std::stod(own_value(keys, "most_step", "5e-2")),
                            .binary_download = own_value(keys, "download", "full") == "binary"});
}

class FedBATReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(FedBATReference, EqualsPlainLoop) {
  const Keys keys = with_fedbat(GetParam().changes);
  const reference::FedBATOutcome expected = expected_of(keys);
  const TinyResult result =
      expect_equals_reference(keys, expected.outcome, GetParam().single_bound);
  if (world_communicator(60)->rank() != 0) return;
  if (own_value(keys, "download", "full") == "binary") {
    expect_series(keys, result, "catch_up_bytes", expected.catch_up, 1e-9);
  }
  for (const RoundMetrics& metrics : result.metrics) {
    EXPECT_EQ(metrics.bytes_up_client_cloud, metrics.participants * expected.bytes_up);
    EXPECT_EQ(metrics.bytes_down_client_cloud, metrics.participants * expected.bytes_down);
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, FedBATReference, ::testing::ValuesIn(all_cases()), name_of);

INSTANTIATE_TEST_SUITE_P(
    Steps, FedBATReference,
    ::testing::Values(
        ReferenceCase{"no_warm_up", {{"algorithm.warm_up", "0"}, {"train.block", "3"}}},
        ReferenceCase{"long_warm_up", {{"algorithm.warm_up", "0.8"}, {"train.block", "8"}}},
        ReferenceCase{"single_steps", {{"train.local_epochs", "0"}, {"train.local_steps", "1"}}},
        ReferenceCase{"single_long_steps",
                      {{"train.local_epochs", "0"},
                       {"train.local_steps", "2"},
                       {"algorithm.warm_up", "0"},
                       {"algorithm.least_step", "0.02"}}},
        ReferenceCase{"fixed_step", {{"algorithm.step_rate", "0"}}},
        ReferenceCase{"free_step", {{"algorithm.least_step", "0"}, {"algorithm.most_step", "10"}}},
        ReferenceCase{"one_step",
                      {{"algorithm.least_step", "0.01"}, {"algorithm.most_step", "0.01"}}},
        ReferenceCase{"learned_fast",
                      {{"algorithm.step_rate", "40"},
                       {"algorithm.most_step", "1"},
                       {"train.local_epochs", "4"},
                       {"train.momentum", "0.5"}}},
        ReferenceCase{"binary_both_ways", {{"algorithm.download", "binary"}}},
        ReferenceCase{"binary_both_ways_some_clients",
                      {{"algorithm.download", "binary"},
                       {"topology.participation", "0.4"},
                       {"run.rounds", "7"}}},
        ReferenceCase{"binary_down_only",
                      {{"algorithm.download", "binary"}, {"algorithm.warm_up", "1"}}},
        ReferenceCase{"batch_norm_binary_both_ways",
                      with_batch_norm({{"algorithm.download", "binary"},
                                       {"topology.participation", "0.6"},
                                       {"train.block", "4"}}),
                      kBatchNormBound}),
    name_of);

TEST(FedBAT, OfUpdatesInFullIsFedAvgBitForBit) {
  const auto world = world_communicator(60);
  for (Keys setting : {Keys{}, Keys{{"topology.participation", "0.4"}, {"run.dtype", "float32"}},
                       with_batch_norm({{"train.momentum", "0.5"}, {"train.block", "3"}})}) {
    const TinyResult fedavg = run(tiny_keys(setting), *world);
    setting["algorithm.warm_up"] = "1";
    const TinyResult fedbat = run(with_fedbat(setting), *world);
    EXPECT_TRUE(fedbat.global.equal(fedavg.global));
    if (world->rank() != 0) continue;
    EXPECT_EQ(bytes_up(fedbat.metrics.back()), bytes_up(fedavg.metrics.back()));
    EXPECT_EQ(bytes_down(fedbat.metrics.back()), bytes_down(fedavg.metrics.back()));
  }
}

TEST(FedBAT, BinaryDownloadsGoOnAfterACheckpoint) {
  const auto world = world_communicator(60);
  const Keys keys = with_fedbat(
      {{"algorithm.download", "binary"}, {"topology.participation", "0.5"}, {"run.rounds", "5"}});
  const TinyResult straight = run(keys, *world);
  const TinyResult parts = run_in_two_parts(keys, 3, *world, *world);
  EXPECT_TRUE(parts.global.equal(straight.global));
  expect_same_bits(parts, straight, *world);
}

TEST(FedBAT, RefusesBoundsThatLeaveNoStep) {
  EXPECT_TRUE(refuses(with_fedbat({{"algorithm.least_step", "0.1"}})));
  EXPECT_FALSE(refuses(with_fedbat({{"algorithm.least_step", "0.05"}})));
  EXPECT_TRUE(refuses_on_command_line(
      with_fedbat({{"algorithm.warm_up", "1"}, {"algorithm.step_rate", "3"}})));
}

/// One weight of 4 x 5 and a bias.
LayoutPtr one_weight() {
  auto layout = std::make_shared<Layout>();
  layout->add("fc.weight", {4, 5}, 5, Tag::Trainable);
  layout->add("fc.bias", {4}, 5, Tag::Trainable | Tag::Uncompressed);
  return layout;
}

/// Updates from -1.9 to 1.9.
Rows rising(const BinaryUpdate& binary) {
  return {at::arange(0, 20, at::kDouble).mul(0.2).sub(1.9).reshape({1, 20}),
          binary.weights().layout()};
}

TEST(BinaryUpdate, IsRightInTheMeanUpToItsStep) {
  const BinaryUpdate binary(one_weight());
  EXPECT_EQ(binary.tensors(), (ColumnRanges{{0, 20}}));
  const Rows m = rising(binary);
  const double alpha = 1.2;
  const Tensor steps = at::full({1, 1}, alpha, at::kDouble);
  Tensor sum = at::zeros({1, 20}, at::kDouble);
  const std::uint64_t draws = 4000;
  for (std::uint64_t i = 0; i < draws; ++i) {
    const std::vector<DrawKey> keys{{.seed = 1, .purpose = Purpose::Binarise, .round = i}};
    const Tensor b = binary.binarise(m, steps, keys).values;
    EXPECT_TRUE(b.abs().eq(alpha).all().item<bool>());
    sum += b;
  }
  // Five standard deviations of a mean of +-alpha.
  const double bound = 5 * alpha / std::sqrt(static_cast<double>(draws));
  const Tensor apart = sum.div(static_cast<double>(draws)).sub(m.values.clamp(-alpha, alpha)).abs();
  EXPECT_LT(apart.max().item<double>(), bound);
}

TEST(BinaryUpdate, PullsBackAsTheMeanDependsOnUpdateAndStep) {
  const BinaryUpdate binary(one_weight());
  const Rows m = rising(binary);
  const double alpha = 1.2;
  const Tensor steps = at::full({1, 1}, alpha, at::kDouble);
  const Tensor weights = at::arange(1, 21, at::kDouble).reshape({1, 20});
  double of_alpha = 0;
  const std::uint64_t draws = 4000;
  for (std::uint64_t i = 0; i < draws; ++i) {
    const std::vector<DrawKey> keys{{.seed = 2, .purpose = Purpose::Binarise, .round = i}};
    const Rows g{weights.clone(), m.layout};
    of_alpha += binary.pull_back_(g, m, binary.binarise(m, steps, keys), steps).item<double>();
    EXPECT_TRUE(g.values.equal(weights.mul(m.values.abs().le(alpha))));
  }
  // The mean of S is clamp(m): its slope by alpha is sign(m) beyond, 0 within.
  const double expected =
      weights.mul(m.values.sign()).mul(m.values.abs().gt(alpha)).sum().item<double>();
  const double bound = 5 * std::sqrt(weights.square().sum().item<double>() / draws);
  EXPECT_NEAR(of_alpha / draws, expected, bound);
}

TEST(BinaryUpdate, OfAStepOfZeroIsZero) {
  const BinaryUpdate binary(one_weight());
  const Rows m{at::zeros({2, 20}, at::kDouble), binary.weights().layout()};
  const Tensor steps = binary.mean_magnitudes(m);
  EXPECT_TRUE(steps.eq(0).all().item<bool>());
  const std::vector<DrawKey> keys(2, {.seed = 3, .purpose = Purpose::Binarise});
  const Rows b = binary.binarise(m, steps, keys);
  EXPECT_TRUE(b.values.eq(0).all().item<bool>());
  const Rows g{at::full({2, 20}, 1.0, at::kDouble), m.layout};
  EXPECT_TRUE(binary.pull_back_(g, m, b, steps).isfinite().all().item<bool>());
}

}  // namespace
}  // namespace fedhpc::testing
