#include "fedhpc/engine/experiment.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/tiny_run.hpp"

namespace fedhpc::testing {
namespace {

TEST(Experiment, EvaluatesEveryFewRoundsAndTheLast) {
  const auto world = world_communicator(60);
  const TinyResult result = run(tiny_keys({{"run.rounds", "7"}, {"run.eval_every", "3"}}), *world);
  ASSERT_EQ(result.metrics.size(), 7U);
  if (world->rank() != 0) return;
  for (std::size_t i = 0; i < 7; ++i) {
    const bool evaluated = i == 2 || i == 5 || i == 6;
    EXPECT_EQ(!std::isnan(result.metrics[i].global_accuracy), evaluated) << "round " << i + 1;
    EXPECT_FALSE(std::isnan(result.metrics[i].train_loss));
  }
}

TEST(Experiment, CountsStepsUpToTheBoundOfEpochs) {
  const auto alone = local_communicator();
  Config config(assignments_of(tiny_keys(
                    {{"train.local_epochs", "2147483647"}, {"network.step_seconds", "1"}})),
                "tiny.ini");
  const Experiment experiment(config, *alone);
  EXPECT_EQ(experiment.parts().steps_of(0), 2147483647LL * 6);  // 23 samples, 4 at a time
  EXPECT_EQ(experiment.parts().steps_of(3), 0);                 // none
}

TEST(Experiment, ScoresTheGlobalModelOnEveryClient) {
  // For a method without personal models the two views of one model agree.
  const auto world = world_communicator(60);
  const RoundMetrics metrics = run(tiny_keys(), *world).metrics.back();
  if (world->rank() != 0) return;
  EXPECT_DOUBLE_EQ(metrics.personal_accuracy_weighted, metrics.global_accuracy);
  EXPECT_GE(metrics.best_personal_accuracy, metrics.personal_accuracy - 1e-7);
  EXPECT_EQ(metrics.participant_accuracy, metrics.personal_accuracy);  // all take part
}

TEST(Experiment, OfficialSplitTestsAtTheServer) {
  const auto world = world_communicator(60);
  Keys keys =
      tiny_keys({{"data.name", "glyphs"}, {"data.partition", "iid"}, {"data.split", "official"}});
  keys.erase("data.partition_file");
  const TinyResult alone = run(keys, *local_communicator());
  const TinyResult result = run(keys, *world);
  EXPECT_LT(distance(result.global, alone.global), 1e-9);
  if (world->rank() != 0) return;
  const RoundMetrics& metrics = result.metrics.back();
  EXPECT_EQ(metrics.global_accuracy, alone.metrics.back().global_accuracy);
  EXPECT_NEAR(metrics.global_loss, alone.metrics.back().global_loss, 1e-12);
  EXPECT_TRUE(std::isnan(metrics.personal_accuracy));
}

TEST(Experiment, AnInfiniteLossIsRecordedAsItIs) {
  const auto world = world_communicator(60);
  const TinyResult result = run(tiny_keys({{"train.lr", "1e200"}, {"run.rounds", "4"}}), *world);
  EXPECT_FALSE(std::isfinite(result.metrics.back().train_loss));
}

TEST(Experiment, ARoundDoesNotGoOnWithClientsThatAreTrainedElsewhere) {
  const auto world = world_communicator(60);
  Config config(assignments_of(tiny_keys({{"topology.placement", "home"}})), "tiny.ini");
  Experiment experiment(config, *world);
  auto left = std::make_unique<PartialRound>();
  const Placement& homes = experiment.parts().placement();
  const int other = (world->rank() + 1) % world->size();
  left->done = {other == world->rank() ? homes.clients() : homes.clients_of_rank(other).front()};
  experiment.go_on_inside(std::move(left));
  try {
    experiment.run([](const RoundReport&) {});
    ADD_FAILURE() << "a client would be trained twice";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("round 1 was left with client"), std::string::npos)
        << error.what();
  }
}

TEST(Experiment, RefusesStragglersThatCannotTrainLess) {
  const auto world = world_communicator(60);
  const auto message = [&](const Keys& changes) {
    Config config(assignments_of(tiny_keys(changes)), "tiny.ini");
    try {
      const Experiment experiment(config, *world);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const Keys one_step{{"train.local_epochs", "1"},
                      {"train.batch_size", "40"}};  // 30 samples at most
  Keys late = one_step;
  late["train.stragglers"] = "0.5";
  EXPECT_EQ(message(one_step), "");
  EXPECT_NE(message(late).find("'train.stragglers'"), std::string::npos);
  EXPECT_NE(message(late).find("straggler_work = none"), std::string::npos);
  late["train.straggler_work"] = "none";
  EXPECT_EQ(message(late), "");
  EXPECT_EQ(message({{"train.stragglers", "0.5"}}), "");
}

TEST(Experiment, HomesAreThoseOfEveryKeyThatMayChange) {
  const auto world = world_communicator(60);
  const auto homes = [&](const Keys& changes) {
    Config config(assignments_of(tiny_keys(changes)), "tiny.ini");
    const Experiment experiment(config, *world);
    std::vector<int> of_clients;
    const Placement placed = experiment.parts().placed_on(3);
    for (std::int64_t client = 0; client < placed.clients(); ++client) {
      of_clients.push_back(placed.home_of(client));
    }
    return of_clients;
  };
  EXPECT_EQ(homes({{"run.eval_every", "50"}}), homes({}));
  EXPECT_NE(homes({{"topology.participation", "0.1"}, {"train.local_epochs", "1"}}), homes({}))
      << "loads differ where tests weigh more";
}

}  // namespace
}  // namespace fedhpc::testing
