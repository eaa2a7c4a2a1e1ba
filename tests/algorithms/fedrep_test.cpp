#include <cmath>
#include <string>

#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>
#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/reference_case.hpp"
#include "reference/fedrep_reference.hpp"

namespace fedhpc::testing {
namespace {

Keys with_fedrep(Keys changes) {
  changes.insert({"algorithm.name", "fedrep"});
  return tiny_keys(changes);
}

reference::FedRepOutcome expected_of(const Keys& keys) {
  return reference::fedrep(reference::make_problem(keys),
                           std::stoll(own_value(keys, "head_passes", "1")),
                           own_value(keys, "optimizer", "pass") == "round");
}

/// The columns of `models` [N P] of the head, or all others, as [N, Q].
Tensor columns_of(const Keys& keys, const Tensor& models, reference::Part part) {
  const reference::Problem problem = reference::make_problem(keys);
  const Tensor rows = models.reshape({static_cast<std::int64_t>(problem.clients.size()), -1});
  std::vector<Tensor> columns;
  for (const Field& field : problem.layout->fields()) {
    if (has(field.tags, Tag::Head) != (part == reference::Part::Head)) continue;
    columns.push_back(rows.narrow(1, field.offset, field.size));
  }
  return at::cat(columns, 1);
}

class FedRepReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(FedRepReference, EqualsPlainLoop) {
  const Keys keys = with_fedrep(GetParam().changes);
  const reference::FedRepOutcome expected = expected_of(keys);
  expect_equals_reference(keys, expected.personal, expected.train_loss, GetParam().single_bound);
}

INSTANTIATE_TEST_SUITE_P(Settings, FedRepReference, ::testing::ValuesIn(all_cases()), name_of);

INSTANTIATE_TEST_SUITE_P(
    Heads, FedRepReference,
    ::testing::Values(
        ReferenceCase{"three_passes", {{"algorithm.head_passes", "3"}, {"train.block", "4"}}},
        ReferenceCase{"two_hidden", {{"model.hidden", "6,5"}}},
        ReferenceCase{"momentum",
                      {{"algorithm.head_passes", "2"},
                       {"train.optimizer", "momentum"},
                       {"train.momentum", "0.8"},
                       {"train.weight_decay", "0.05"}}},
        ReferenceCase{"batch_norm",
                      with_batch_norm({{"algorithm.head_passes", "3"}, {"train.block", "3"}}),
                      kBatchNormBound},
        ReferenceCase{"convolutions_without_batch_norm",
                      with_batch_norm({{"model.norm", "none"}, {"model.bias", "true"}})}),
    name_of);

const Keys kOneOptimizer{{"algorithm.head_passes", "3"},
                         {"algorithm.optimizer", "round"},
                         {"train.momentum", "0.5"},
                         {"train.weight_decay", "0.05"},
                         {"train.decay_biases", "false"}};

Keys with_one_optimizer(Keys changes) {
  changes.insert(kOneOptimizer.begin(), kOneOptimizer.end());
  return changes;
}

INSTANTIATE_TEST_SUITE_P(
    Authors, FedRepReference,
    ::testing::Values(
        ReferenceCase{"one_optimizer", kOneOptimizer},
        ReferenceCase{"one_optimizer_wide_blocks", with_one_optimizer({{"train.block", "4"}})},
        ReferenceCase{"one_optimizer_some_clients",
                      with_one_optimizer({{"topology.participation", "0.4"}, {"run.rounds", "5"}})},
        ReferenceCase{"one_adam",
                      {{"algorithm.head_passes", "2"},
                       {"algorithm.optimizer", "round"},
                       {"train.optimizer", "adam"},
                       {"train.lr", "0.01"}},
                      kAdamBound},
        ReferenceCase{"one_optimizer_batch_norm", with_batch_norm(kOneOptimizer), kBatchNormBound}),
    name_of);

INSTANTIATE_TEST_SUITE_P(FallingRate, FedRepReference, ::testing::ValuesIn(falling_lr_cases()),
                         name_of);

TEST(FedRep, BodiesAreOneHeadsAreTheClientsOwn) {
  for (const Keys& changes : {Keys{}, with_batch_norm()}) {
    const Keys keys = with_fedrep(changes);
    const TinyResult result = run(keys, *world_communicator(60));
    const Tensor bodies = columns_of(keys, result.personal, reference::Part::Body);
    const Tensor heads = columns_of(keys, result.personal, reference::Part::Head);
    EXPECT_TRUE(bodies.equal(bodies.narrow(0, 0, 1).expand_as(bodies)));
    for (std::int64_t k = 1; k < 7; ++k) {
      EXPECT_GT(distance(heads[k], heads[0]), 1e-3) << "client " << k;
    }
  }
}

TEST(FedRep, ClientsThatNeverTrainedHaveTheInitialHead) {
  const Keys keys = with_fedrep({{"topology.participation", "0.3"}, {"run.rounds", "2"}});
  const TinyResult result = run(keys, *world_communicator(60));
  const std::vector<bool> trained = have_trained(result);
  const Tensor heads = columns_of(keys, result.personal, reference::Part::Head);
  const Tensor initial = columns_of(keys, result.initial, reference::Part::Head);
  for (std::int64_t k = 0; k < 7; ++k) {
    EXPECT_EQ(heads[k].equal(initial[k]), !trained[static_cast<std::size_t>(k)]) << k;
  }
}

TEST(FedRep, BooksBodiesOnly) {
  const auto world = world_communicator(60);
  for (const Keys& changes : {Keys{}, with_batch_norm()}) {
    for (const auto& [codec, bytes] : {std::pair{"dense", 4}, std::pair{"fp16", 2}}) {
      Keys keys = with_fedrep(changes);
      keys.insert({{"topology.participation", "0.6"}, {"algorithm.codec", codec}});
      keys["run.dtype"] = "float32";
      const TinyResult result = run(keys, *world);
      if (world->rank() != 0) continue;
      const auto body = static_cast<double>(
          columns_of(keys, result.personal, reference::Part::Body).size(1));  // P - d_head
      EXPECT_LT(7 * body, static_cast<double>(result.personal.numel()));
      for (const RoundMetrics& metrics : result.metrics) {
        EXPECT_EQ(metrics.participants, 4);
        EXPECT_EQ(metrics.bytes_down_client_cloud, 4 * 4 * body);
        EXPECT_EQ(metrics.bytes_up_client_cloud, 4 * bytes * body);
      }
    }
  }
}

TEST(FedRep, OfNothingButAHeadItIsLocalOnlyBitForBit) {
  const auto world = world_communicator(60);
  const Keys linear{{"model.name", "mlr"}, {"topology.participation", "0.6"}};
  Keys alone = linear;
  alone["algorithm.name"] = "localonly";
  const TinyResult result = run(with_fedrep(linear), *world);
  EXPECT_TRUE(result.personal.equal(run(tiny_keys(alone), *world).personal));
  if (world->rank() != 0) return;
  EXPECT_EQ(bytes_up(result.metrics.back()), 0);
  EXPECT_EQ(bytes_down(result.metrics.back()), 0);
}

TEST(FedRep, MorePassesMoveHeadsFurther) {
  const auto moved = [](const std::string& passes) {
    const Keys keys = with_fedrep({{"algorithm.head_passes", passes}, {"run.rounds", "1"}});
    const TinyResult result = run(keys, *world_communicator(60));
    return distance(columns_of(keys, result.personal, reference::Part::Head),
                    columns_of(keys, result.initial, reference::Part::Head));
  };
  EXPECT_GT(moved("4"), 1.5 * moved("1"));
}

}  // namespace
}  // namespace fedhpc::testing
