#include <string>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"
#include "fedhpc/engine/plan.hpp"

#include "fixtures/reference_case.hpp"
#include "reference/pfedme_reference.hpp"

namespace fedhpc::testing {
namespace {

Keys with_pfedme(Keys changes) {
  changes.insert({{"algorithm.name", "pfedme"},
                  {"algorithm.lambda", "7"},
                  {"algorithm.personal_lr", "0.06"},
                  {"algorithm.inner_steps", "3"}});
  return tiny_keys(changes);
}

reference::PersonalOutcome expected_of(const Keys& keys) {
  const auto value = [&](const std::string& key, const std::string& otherwise) {
    return keys.contains(key) ? keys.at(key) : otherwise;
  };
  return reference::pfedme(reference::make_problem(keys),
                           {.personal_lr = std::stod(keys.at("algorithm.personal_lr")),
                            .lambda = std::stod(keys.at("algorithm.lambda")),
                            .inner_steps = std::stoll(keys.at("algorithm.inner_steps")),
                            .beta = std::stod(value("algorithm.beta", "1")),
                            .all_train = value("algorithm.training", "participants") == "all",
                            .restart_every_step = value("algorithm.restart", "round") == "step"});
}

class PFedMeReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(PFedMeReference, EqualsPlainLoop) {
  const Keys keys = with_pfedme(GetParam().changes);
  const reference::PersonalOutcome expected = expected_of(keys);
  const TinyResult result =
      expect_equals_reference(keys, expected.outcome, GetParam().single_bound);
  EXPECT_LT(distance(result.personal, flatten_all(expected.personal)), 1e-9);

  Keys local = keys;
  local["algorithm.evaluate"] = "local";
  const TinyResult other = run(local, *world_communicator(60));
  EXPECT_TRUE(other.global.equal(result.global));
  EXPECT_LT(distance(other.personal, flatten_all(expected.local)), 1e-9);
  EXPECT_GT(distance(other.personal, result.personal), 1e-4);
  expect_personal_accuracy(keys, result, expected.personal);
}

INSTANTIATE_TEST_SUITE_P(
    Settings, PFedMeReference,
    ::testing::Values(
        ReferenceCase{"epochs", {}}, ReferenceCase{"wide_blocks", {{"train.block", "4"}}},
        ReferenceCase{"restart", {{"algorithm.restart", "step"}}},
        ReferenceCase{"beta", {{"algorithm.beta", "1.5"}}},
        ReferenceCase{"steps", {{"train.local_epochs", "0"}, {"train.local_steps", "6"}}},
        ReferenceCase{"full_batch", {{"train.batch_size", "0"}}},
        ReferenceCase{"some_clients_uniform",
                      {{"topology.participation", "0.4"},
                       {"run.rounds", "5"},
                       {"algorithm.weighting", "uniform"}}},
        ReferenceCase{"all_train",
                      {{"topology.participation", "0.4"},
                       {"run.rounds", "5"},
                       {"algorithm.training", "all"},
                       {"train.weight_decay", "0.001"},
                       {"train.block", "3"}}},
        ReferenceCase{"clipped", {{"train.clip_norm", "0.1"}, {"train.block", "3"}}},
        ReferenceCase{"nesterov", {{"train.optimizer", "nesterov"}, {"train.momentum", "0.5"}}},
        ReferenceCase{"weight_decay", {{"train.weight_decay", "0.01"}, {"train.block", "3"}}},
        ReferenceCase{"convolutions", with_batch_norm({{"model.norm", "none"}})},
        ReferenceCase{"batch_norm", with_batch_norm({{"train.block", "3"}}), kBatchNormBound},
        ReferenceCase{"batch_norm_restart",
                      with_batch_norm({{"algorithm.restart", "step"},
                                       {"train.momentum", "0.5"},
                                       {"train.weight_decay", "0.01"}}),
                      kBatchNormBound},
        ReferenceCase{"batch_norm_all_train",
                      with_batch_norm({{"topology.participation", "0.4"},
                                       {"run.rounds", "4"},
                                       {"algorithm.training", "all"},
                                       {"algorithm.beta", "1.5"},
                                       {"train.block", "4"}}),
                      kBatchNormBound}),
    name_of);

INSTANTIATE_TEST_SUITE_P(FallingRate, PFedMeReference, ::testing::ValuesIn(falling_lr_cases()),
                         name_of);

TEST(PFedMe, BothRestartsMoveStatisticsAlike) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  Keys keys = with_pfedme(with_batch_norm({{"train.lr", "0"}, {"algorithm.personal_lr", "0"}}));
  const TinyResult once = run(keys, *comm);
  EXPECT_GT(distance(once.global, once.initial), 1e-2);
  keys["algorithm.restart"] = "step";
  EXPECT_LT(distance(run(keys, *comm).global, once.global), 1e-12);
}

TEST(PFedMe, WithoutItsTermTheGlobalModelStays) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const TinyResult result = run(with_pfedme({{"algorithm.lambda", "0"}}), *comm);
  EXPECT_TRUE(result.global.equal(result.initial));
  EXPECT_GT(distance(result.personal, result.initial.repeat({7})), 1e-2) << "theta trains alone";
}

TEST(PFedMe, BetaZeroKeepsTheGlobalModel) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const TinyResult result = run(with_pfedme({{"algorithm.beta", "0"}}), *comm);
  EXPECT_TRUE(result.global.equal(result.initial));
}

TEST(PFedMe, AllReceiveAndSomeSend) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const Keys keys = with_pfedme({{"topology.participation", "0.4"}, {"algorithm.training", "all"}});
  const TinyResult result = run(keys, *comm);
  const PlannedRun planned = plan(keys, *comm);
  if (comm->rank() != 0) return;
  const double payload = 8 * static_cast<double>(result.global.numel());
  EXPECT_EQ(static_cast<double>(planned.down_per_client), payload) << "of a participant";
  for (const RoundMetrics& metrics : result.metrics) {
    EXPECT_EQ(bytes_down(metrics), 7 * payload);
    EXPECT_EQ(bytes_up(metrics), 3 * payload);
    EXPECT_EQ(metrics.participants, 3);
  }
}

TEST(PFedMe, ClientsThatNeverTrainedStandAtTheGlobalModel) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const TinyResult result =
      run(with_pfedme({{"topology.participation", "0.3"}, {"run.rounds", "2"}}), *comm);
  expect_untrained_have(result.global, result);
}

}  // namespace
}  // namespace fedhpc::testing
