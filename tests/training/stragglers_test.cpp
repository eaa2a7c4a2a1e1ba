#include "fedhpc/training/stragglers.hpp"

#include <map>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "fedhpc/core/rng.hpp"
#include "fedhpc/training/local_trainer.hpp"

namespace fedhpc {
namespace {

TrainOptions late(std::vector<double> shares, StragglerWork work) {
  TrainOptions options;
  options.stragglers = std::move(shares);
  options.straggler_work = work;
  return options;
}

TEST(StragglersTest, NobodyIsLateUnlessAskedFor) {
  const Stragglers nobody(TrainOptions{}, 3);
  EXPECT_FALSE(nobody.train_less());
  EXPECT_FALSE(nobody.stay_away());
  for (std::int64_t client = 0; client < 50; ++client) {
    EXPECT_EQ(nobody.steps(7, client, 1), 7);
    EXPECT_FALSE(nobody.is_away(client, 1));
  }
  EXPECT_EQ(nobody.mean_part(0, 7), 1);
}

TEST(StragglersTest, StepsAreThoseOfTheirDraws) {
  const Stragglers stragglers(late({0.4}, StragglerWork::Part), 11);
  for (std::int64_t client = 0; client < 20; ++client) {
    EXPECT_EQ(stragglers.steps(6, client, 0), 6) << "what comes before round 1 is whole";
  }
  for (std::int64_t round = 1; round <= 20; ++round) {
    for (std::int64_t client = 0; client < 20; ++client) {
      Draws draws({.seed = 11,
                   .purpose = Purpose::Stragglers,
                   .client = static_cast<std::uint64_t>(client),
                   .round = static_cast<std::uint64_t>(round)});
      const bool is_late = draws.uniform() < 0.4;
      const double part = 1 - draws.uniform();
      EXPECT_EQ(stragglers.part(client, round), is_late ? part : 1);
      const std::int64_t steps = stragglers.steps(6, client, round);
      EXPECT_EQ(steps, is_late ? static_cast<std::int64_t>(std::ceil(6 * part)) : 6);
      EXPECT_EQ(stragglers.steps(0, client, round), 0) << "who cannot train does not";
      EXPECT_EQ(stragglers.steps(1, client, round), 1) << "nobody does nothing";
    }
  }
}

TEST(StragglersTest, AsManyAreLateAsAskedForByAnyNumberOfSteps) {
  constexpr double kShare = 0.25;
  constexpr std::int64_t kSteps = 5;
  constexpr int kTries = 20000;
  const Stragglers stragglers(late({kShare}, StragglerWork::Part), 5);
  std::map<std::int64_t, int> times;
  double mean = 0;
  for (int i = 0; i < kTries; ++i) {
    const std::int64_t steps = stragglers.steps(kSteps, i % 100, 1 + i / 100);
    ++times[steps];
    mean += static_cast<double>(steps) / kSteps / kTries;
  }
  ASSERT_EQ(times.size(), 5U);
  for (std::int64_t steps = 1; steps < kSteps; ++steps) {
    EXPECT_NEAR(times[steps], kTries * kShare / kSteps, 130) << steps;  // 4 deviations
  }
  EXPECT_NEAR(stragglers.mean_part(0, kSteps), mean, 0.01);
  EXPECT_EQ(stragglers.mean_part(0, 1), 1) << "who takes one step takes it";
}

TEST(StragglersTest, WhoStaysAwayDoesAllOfItsOtherRounds) {
  const Stragglers stragglers(late({0.3}, StragglerWork::None), 5);
  EXPECT_TRUE(stragglers.stay_away());
  EXPECT_FALSE(stragglers.train_less());
  EXPECT_DOUBLE_EQ(stragglers.mean_part(0, 5), 0.7);
  const std::vector<std::int64_t> clients{2, 3, 5, 8, 13, 21, 34, 55, 89, 144};
  std::int64_t away = 0;
  for (std::int64_t round = 1; round <= 400; ++round) {
    const std::vector<std::int64_t> here = stragglers.on_time(clients, round);
    EXPECT_TRUE(std::ranges::is_sorted(here));
    for (const std::int64_t client : clients) {
      EXPECT_EQ(stragglers.steps(6, client, round), 6);
      const bool stays = std::ranges::binary_search(here, client);
      EXPECT_NE(stays, stragglers.is_away(client, round));
      away += stays ? 0 : 1;
    }
  }
  EXPECT_NEAR(static_cast<double>(away), 0.3 * 400 * 10, 120);  // 4 deviations
}

TEST(StragglersTest, ClientsHaveNumbersOfTheirOwnInTurn) {
  const std::vector<double> shares{0, 0.8, 0.3};
  const Stragglers less(late(shares, StragglerWork::Part), 5);
  const Stragglers none(late(shares, StragglerWork::None), 5);
  ASSERT_TRUE(less.train_less() && none.stay_away());
  EXPECT_FALSE(Stragglers(late({0, 0}, StragglerWork::Part), 5).train_less());
  std::vector<int> times(3, 0);
  for (std::int64_t round = 1; round <= 500; ++round) {
    for (std::int64_t client = 0; client < 6; ++client) {
      EXPECT_EQ(less.part(client, round) < 1, none.is_away(client, round));
      times[client % 3] += none.is_away(client, round) ? 1 : 0;
    }
  }
  EXPECT_EQ(times[0], 0);
  EXPECT_NEAR(times[1], 800, 51);  // 4 deviations
  EXPECT_NEAR(times[2], 300, 58);
  EXPECT_DOUBLE_EQ(none.mean_part(4, 5), 1 - 0.8);
  EXPECT_DOUBLE_EQ(less.mean_part(5, 5), 1 - 0.3 * 0.4);
  EXPECT_EQ(less.mean_part(3, 5), 1);
}

TEST(StragglersTest, OneIsAlwaysLeft) {
  const Stragglers stragglers(late({0.95}, StragglerWork::None), 5);
  const std::vector<std::int64_t> clients{0, 1, 2};
  int alone = 0;
  for (std::int64_t round = 1; round <= 100; ++round) {
    const std::vector<std::int64_t> here = stragglers.on_time(clients, round);
    ASSERT_FALSE(here.empty());
    if (!stragglers.is_away(here.front(), round)) continue;
    ++alone;
    ASSERT_EQ(here.size(), 1U);
    const auto drawn = [&](std::int64_t client) {
      return Draws({.seed = 5,
                    .purpose = Purpose::Stragglers,
                    .client = static_cast<std::uint64_t>(client),
                    .round = static_cast<std::uint64_t>(round)})
          .uniform();
    };
    for (const std::int64_t client : clients) EXPECT_LE(drawn(client), drawn(here.front()));
  }
  EXPECT_GT(alone, 60) << "0.95^3 of the rounds";
  EXPECT_TRUE(stragglers.on_time({}, 1).empty());
}

TEST(StragglersTest, TrainingEndsEarlyAndAnEvaluationDoesNot) {
  DataOptions data;
  data.clients = 8;
  data.samples_per_client = 16;
  const auto dataset = open_dataset(data);
  const Partition partition = make_partition(data, *dataset);
  const std::vector<std::int64_t> clients{0, 1, 2, 3, 4, 5, 6, 7};
  const Shard shard(*dataset, partition, clients, make_preparation(data, *dataset), DType::Float64);
  ModelOptions mlr;
  mlr.name = "mlr";
  const auto model = make_model(mlr, dataset->shape(), dataset->classes());
  TrainOptions options = late({0.5}, StragglerWork::Part);
  options.batch_size = 4;
  options.local_epochs = 2;
  const Context context{.type = at::kDouble, .seed = 4};
  LocalTrainer trainer(*model, shard, options, context);
  const Stragglers stragglers(options, context.seed);
  std::int64_t fewer = 0;
  for (std::int64_t round = 1; round <= 4; ++round) {
    Rows rows = Rows{initial_row(*model->layout(), 4, at::kDouble), model->layout()}.replicate(8);
    const auto statistics = trainer.train_(rows, clients, round, {});
    for (const std::int64_t client : clients) {
      const std::int64_t steps = stragglers.steps(6, client, round);  // 12 of 16 samples train
      EXPECT_EQ(statistics[static_cast<std::size_t>(client)].gradients, steps);
      EXPECT_EQ(trainer.steps(client, round), steps);
      fewer += steps < 6 ? 1 : 0;
    }
    // Alone and without the others it ends in the same place.
    Rows alone{initial_row(*model->layout(), 4, at::kDouble), model->layout()};
    trainer.train_(alone, std::vector<std::int64_t>{5}, round, {});
    EXPECT_TRUE(alone.values[0].allclose(rows.values[5], 1e-12, 1e-14));
  }
  EXPECT_GT(fewer, 4);
  // The same from a trainer without stragglers.
  options.stragglers = {0};
  LocalTrainer prompt(*model, shard, options, context);
  Rows adapted = Rows{initial_row(*model->layout(), 4, at::kDouble), model->layout()}.replicate(8);
  Rows expected = adapted.clone();
  trainer.adapt_(adapted, clients, 3);
  prompt.adapt_(expected, clients, 3);
  EXPECT_TRUE(adapted.values.equal(expected.values)) << "an evaluation adapts as long as ever";
}

}  // namespace
}  // namespace fedhpc
