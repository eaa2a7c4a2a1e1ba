#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/fine_tuning_case.hpp"
#include "fixtures/resumed_run.hpp"
#include "reference/fedavg_ft_reference.hpp"
#include "reference/fedavg_reference.hpp"

namespace fedhpc::testing {
namespace {

Keys with_fedavg_ft(Keys changes, const std::string& start = "fine_tuned") {
  changes.insert({{"algorithm.name", "fedavg_ft"}, {"algorithm.start", start}});
  return tiny_keys(changes);
}

class FedAvgFTReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(FedAvgFTReference, EqualsPlainLoop) {
  for (const std::string start : {"fine_tuned", "received"}) {
    SCOPED_TRACE(start);
    const Keys keys = with_fedavg_ft(GetParam().changes, start);
    expect_equals_fine_tuned(
        keys, reference::fedavg_ft(reference::make_problem(keys), local_start_of(keys)),
        GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, FedAvgFTReference, ::testing::ValuesIn(all_cases()), name_of);

TEST(FedAvgFT, FromTheReceivedModelItIsFedAvgInFullBatch) {
  const auto world = world_communicator(60);
  for (const Keys& setting : {Keys{}, with_batch_norm(), Keys{{"topology.participation", "0.4"}},
                              Keys{{"run.dtype", "float32"}, {"train.momentum", "0.5"}}}) {
    Keys full = setting;
    full["train.batch_size"] = "0";
    const TinyResult fedavg = run(tiny_keys(full), *world);
    const TinyResult received = run(with_fedavg_ft(full, "received"), *world);
    EXPECT_TRUE(received.global.equal(fedavg.global));
    EXPECT_GT(distance(run(with_fedavg_ft(full), *world).global, fedavg.global), 1e-4);
    if (world->rank() != 0) continue;
    EXPECT_EQ(received.metrics.back().global_accuracy, fedavg.metrics.back().global_accuracy);
  }
}

TEST(FedAvgFT, FromTheReceivedModelItTrainsOnTheBatchesOfPassOne) {
  const Keys keys = with_fedavg_ft({}, "received");
  const reference::Problem problem = reference::make_problem(keys);
  reference::Parameters w = problem.initial;
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    reference::Average next;
    for (const std::int64_t k : reference::cohort(problem, t)) {
      next.add(reference::train(problem, k, t, {.pass = 1}, w).parameters,
               reference::weight_of(problem, k));
    }
    w = next.mean_or(w);
  }
  const TinyResult result = run(keys, *world_communicator(60));
  EXPECT_LT(distance(result.global, reference::flatten(w)), 1e-12);
  EXPECT_GT(distance(result.global, reference::fedavg(problem).global), 1e-4);
}

TEST(FedAvgFT, FromTheFineTunedModelItIsFedAvgOfTwiceTheFullBatches) {
  const auto world = world_communicator(60);
  // Exact sums: homes depend on how many steps clients make.
  for (const Keys& setting : {Keys{}, with_batch_norm(), Keys{{"topology.participation", "0.4"}}}) {
    Keys keys = setting;
    keys["run.reproducible"] = "true";
    keys["train.batch_size"] = "0";
    keys["train.local_epochs"] = "0";
    keys["train.local_steps"] = "3";
    const TinyResult tuned = run(with_fedavg_ft(keys), *world);
    keys["train.local_steps"] = "6";
    const TinyResult fedavg = run(tiny_keys(keys), *world);
    EXPECT_TRUE(tuned.global.equal(fedavg.global)) << distance(tuned.global, fedavg.global);
    if (world->rank() != 0) continue;
    EXPECT_NEAR(tuned.metrics.back().train_loss, fedavg.metrics.back().train_loss, 1e-12);
  }
}

TEST(FedAvgFT, EvaluationLeavesNoTrace) {
  expect_evaluation_leaves_no_trace(with_fedavg_ft({{"topology.participation", "0.6"}}));
}

TEST(FedAvgFT, EveryClientIsTunedThatCanBe) {
  // Client 3 has no training sample, most clients are not drawn.
  const TinyResult result =
      run(with_fedavg_ft({{"topology.participation", "0.2"}, {"run.rounds", "1"}}),
          *world_communicator(60));
  const Tensor personal = result.personal.reshape({7, -1});
  for (std::int64_t k = 0; k < 7; ++k) {
    EXPECT_EQ(personal[k].equal(result.global), k == 3) << "client " << k;
  }
}

TEST(FedAvgFT, BooksOneModelEachWay) {
  const auto world = world_communicator(60);
  const TinyResult result = run(with_fedavg_ft({{"topology.participation", "0.6"},
                                                {"run.dtype", "float32"},
                                                {"algorithm.codec", "fp16"}}),
                                *world);
  if (world->rank() != 0) return;
  const auto model = static_cast<double>(result.global.numel());
  for (const RoundMetrics& metrics : result.metrics) {
    EXPECT_EQ(metrics.participants, 4);
    EXPECT_EQ(metrics.bytes_down_client_cloud, 4 * 4 * model);
    EXPECT_EQ(metrics.bytes_up_client_cloud, 4 * 2 * model);
  }
}

TEST(FedAvgFT, ARoundLeftInsideIsScoredAsItBegan) {
  const auto world = world_communicator(60);
  for (const bool seldom_first : {true, false}) {
    Keys keys = with_fedavg_ft({{"run.rounds", "3"},
                                {"run.grace_seconds", "0"},
                                {"train.block", "1"},
                                {"topology.participation", "1"}});
    const std::string then = seldom_first ? "1" : "3";
    const TinyResult straight = run(keys, *world);
    keys["run.eval_every"] = seldom_first ? "3" : "1";
    int left = 0;
    const TinyResult parts = run_left_in_rounds(keys, *world, left, {{"run.eval_every", then}});
    ASSERT_GT(left, 0);
    EXPECT_TRUE(parts.global.equal(straight.global));
    if (world->rank() != 0) continue;
    const std::vector<double> expected = own_series(keys, straight, kReceptionAccuracy);
    const std::vector<double> actual = own_series(keys, parts, kReceptionAccuracy);
    EXPECT_EQ(std::isnan(actual[0]), seldom_first);
    EXPECT_EQ(std::isnan(actual[1]), !seldom_first);
    for (const std::size_t t : {0, 1, 2}) {
      EXPECT_TRUE(std::isnan(actual[t]) || actual[t] == expected[t]) << "round " << t + 1;
    }
  }
}

}  // namespace
}  // namespace fedhpc::testing
