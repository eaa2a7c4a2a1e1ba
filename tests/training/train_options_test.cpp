#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fedhpc/core/error.hpp"
#include "fedhpc/training/options.hpp"

namespace fedhpc {
namespace {

using Assignments = std::vector<std::pair<std::string, std::string>>;

/// The options after these lines of a configuration file.
struct Resolved {
  explicit Resolved(const Assignments& lines, std::int64_t rounds = 10,
                    std::int64_t trainings = 1) {
    train.declare(options);
    int line = 0;
    for (const auto& [key, text] : lines) {
      options.assign("train." + key, text, {Level::File, "x.ini:" + std::to_string(++line)});
    }
    train.resolve(options, rounds, trainings);
  }
  Resolved(const Resolved&) = delete;
  Resolved& operator=(const Resolved&) = delete;

  TrainOptions train;
  OptionSet options;
};

TEST(TrainOptionsTest, SgdWithMomentumIsTheRuleOfThatName) {
  EXPECT_TRUE(Resolved(Assignments{}).train.step_rule().is_plain());
  const StepRule momentum = Resolved(Assignments{{"momentum", "0.5"}}).train.step_rule();
  EXPECT_EQ(momentum.kind, OptimizerKind::Momentum);
  EXPECT_EQ(momentum.momentum, 0.5);
  const StepRule nesterov =
      Resolved(Assignments{{"momentum", "0.5"}, {"nesterov", "true"}}).train.step_rule();
  EXPECT_EQ(nesterov.kind, OptimizerKind::Nesterov);
}

TEST(TrainOptionsTest, StragglersNeedMoreThanOneStep) {
  const Assignments one_step{{"local_steps", "1"}, {"stragglers", "0.5"}};
  EXPECT_THROW(Resolved{one_step}, ConfigError);
  EXPECT_THROW(Resolved(Assignments{{"batch_size", "0"}, {"stragglers", "0.5"}}), ConfigError);
  EXPECT_NO_THROW(
      Resolved(Assignments{{"batch_size", "0"}, {"local_epochs", "2"}, {"stragglers", "0.5"}}));
  EXPECT_NO_THROW(Resolved(Assignments{{"local_steps", "2"}, {"stragglers", "0.5"}}));
  Assignments away = one_step;
  away.emplace_back("straggler_work", "none");
  EXPECT_NO_THROW(Resolved{away});
  EXPECT_THROW(Resolved(Assignments{{"stragglers", "1"}}), std::exception)
      << "nobody would be left";
}

TEST(TrainOptionsTest, NamedRulesHaveAUsualMomentum) {
  const Resolved momentum(Assignments{{"optimizer", "momentum"}});
  EXPECT_EQ(momentum.train.step_rule().momentum, 0.9);
  EXPECT_FALSE(momentum.train.nesterov);
  const Resolved nesterov(
      Assignments{{"optimizer", "nesterov"}, {"weight_decay", "0.1"}, {"lr", "0.25"}});
  const StepRule rule = nesterov.train.step_rule();
  EXPECT_EQ(rule.kind, OptimizerKind::Nesterov);
  EXPECT_EQ(rule.momentum, 0.9);
  EXPECT_EQ(rule.weight_decay, 0.1);
  EXPECT_EQ(rule.lr, 0.25);
  EXPECT_EQ(Resolved(Assignments{{"optimizer", "adam"}}).train.step_rule().kind,
            OptimizerKind::Adam);
}

TEST(TrainOptionsTest, ValuesInForceMakeTheSameRuleAgain) {
  // A result file holds the resolved configuration, which must be accepted and mean the same.
  for (const Assignments& lines :
       {Assignments{{"optimizer", "nesterov"}}, Assignments{{"optimizer", "momentum"}},
        Assignments{{"optimizer", "adam"}},
        Assignments{{"momentum", "0.5"}, {"nesterov", "true"}}}) {
    const Resolved first(lines);
    Assignments all;
    for (const char* key : {"optimizer", "momentum", "nesterov", "weight_decay"}) {
      all.emplace_back(key, first.options.entry("train." + std::string(key)).print());
    }
    const Resolved second(all);
    EXPECT_EQ(second.train.step_rule().kind, first.train.step_rule().kind);
    EXPECT_EQ(second.train.step_rule().momentum, first.train.step_rule().momentum);
  }
}

TEST(TrainOptionsTest, ContradictionsAreRefused) {
  const std::vector<std::pair<Assignments, std::string>> bad = {
      {{{"optimizer", "momentum"}, {"momentum", "0"}}, "x.ini:2: key 'train.momentum'"},
      {{{"lr_schedule", "milestones"}}, "x.ini:1: key 'train.lr_schedule'"},
      {{{"lr_schedule", "milestones"}, {"lr_milestones", "5,5"}},
       "x.ini:2: key 'train.lr_milestones'"},
      {{{"lr_schedule", "cosine"}, {"lr_warmup", "10"}}, "x.ini:2: key 'train.lr_warmup'"},
      {{{"lr_schedule", "cosine"}, {"lr_unit", "epoch"}}, "x.ini:2: key 'train.lr_unit'"},
      {{{"lr_schedule", "cosine"}, {"lr_period", "9"}}, "x.ini:2: key 'train.lr_period'"},
      {{{"lr_schedule", "cosine"}, {"lr_unit", "epoch"}, {"lr_period", "9"}},
       "x.ini:3: key 'train.lr_period'"}};
  for (const auto& [lines, part] : bad) {
    try {
      const Resolved resolved(lines);
      ADD_FAILURE() << "accepted where '" << part << "' was expected";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(Resolved(Assignments{{"momentum", "1"}}), ConfigError);
  EXPECT_THROW(Resolved(Assignments{{"weight_decay", "-0.1"}}), ConfigError);
}

TEST(TrainOptionsTest, ACosineByEpochLastsAsLongAsTheRunSurelyDoes) {
  const auto lines = [](const char* length, const char* count, const char* period) {
    return Assignments{
        {"lr_schedule", "cosine"}, {"lr_unit", "epoch"}, {"lr_period", period}, {length, count}};
  };
  EXPECT_THROW(Resolved(lines("local_epochs", "3", "29"), 10), ConfigError);
  EXPECT_EQ(Resolved(lines("local_epochs", "3", "30"), 10).train.lr_period, 30);
  Assignments floor = lines("local_epochs", "3", "29");
  floor.emplace_back("lr_final", "0.1");
  EXPECT_EQ(Resolved(floor, 10).train.lr_period, 29);
  Assignments steps = lines("local_steps", "7", "9");
  steps.emplace_back("local_epochs", "0");
  EXPECT_THROW(Resolved(steps, 10), ConfigError);
  steps[2].second = "10";
  EXPECT_EQ(Resolved(steps, 10).train.lr_period, 10);
  EXPECT_THROW(Resolved(steps, 10, /*trainings=*/4), ConfigError);
  steps[2].second = "40";
  EXPECT_EQ(Resolved(steps, 10, /*trainings=*/4).train.lr_period, 40);
}

std::string why_lost(const Assignments& lines, std::int64_t rounds, DType dtype = DType::Float32) {
  const Resolved resolved(lines, rounds);
  try {
    resolved.train.refuse_lost_rates(resolved.options, rounds, dtype, "algorithm.name = x");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(TrainOptionsTest, ARateThatIsLostIsRefusedWhereItIsDividedBy) {
  Assignments falling{{"lr", "0.1"}, {"lr_schedule", "exponential"}, {"lr_decay", "0.1"}};
  EXPECT_EQ(why_lost(falling, 37), "");
  EXPECT_NE(why_lost(falling, 60).find("x.ini:2: key 'train.lr_schedule'"), std::string::npos);
  EXPECT_NE(why_lost(falling, 60).find("in round 60"), std::string::npos);
  EXPECT_EQ(why_lost(falling, 60, DType::Float64), "");
  EXPECT_NE(why_lost(falling, 400, DType::Float64), "");
  for (const char* lr : {"0", "-0", "1e-39"}) {
    EXPECT_NE(why_lost({{"lr", lr}}, 1).find("x.ini:1: key 'train.lr'"), std::string::npos) << lr;
  }
  const Assignments warm{{"lr", "1e-30"}, {"lr_warmup", "3"}, {"lr_warmup_start", "1e-9"}};
  EXPECT_NE(why_lost(warm, 5).find("key 'train.lr_warmup_start'"), std::string::npos);
}

double factor(const Assignments& lines, std::int64_t units) {
  return Resolved(lines, /*rounds=*/50).train.lr_factor(units);
}

TEST(TrainOptionsTest, TheRateFollowsItsSchedule) {
  const Assignments falling{{"lr_schedule", "exponential"}, {"lr_decay", "0.5"}};
  EXPECT_EQ(factor(falling, 0), 1);
  EXPECT_EQ(factor(falling, 3), 0.125);
  const Assignments steps{{"lr_schedule", "step"}, {"lr_every", "3"}, {"lr_decay", "0.5"}};
  const Assignments milestones{
      {"lr_schedule", "milestones"}, {"lr_milestones", "2,7"}, {"lr_decay", "0.5"}};
  const std::vector<std::pair<std::int64_t, double>> of_steps{
      {0, 1}, {2, 1}, {3, 0.5}, {5, 0.5}, {6, 0.25}, {30, std::pow(0.5, 10)}};
  for (const auto& [t, expected] : of_steps) EXPECT_EQ(factor(steps, t), expected) << t;
  const std::vector<std::pair<std::int64_t, double>> of_milestones{{0, 1},   {1, 1},    {2, 0.5},
                                                                   {6, 0.5}, {7, 0.25}, {40, 0.25}};
  for (const auto& [t, expected] : of_milestones) EXPECT_EQ(factor(milestones, t), expected) << t;
}

TEST(TrainOptionsTest, ACosineEndsWithTheRunAndAWarmUpComesFirst) {
  const Assignments cosine{{"lr_schedule", "cosine"}, {"lr_final", "0.2"}};
  EXPECT_EQ(factor(cosine, 0), 1);
  EXPECT_NEAR(factor(cosine, 25), 0.6, 1e-15);
  EXPECT_GT(factor(cosine, 49), 0.2) << "the last round of 50";
  EXPECT_EQ(factor(cosine, 50), 0.2);
  EXPECT_EQ(factor(cosine, 73), 0.2) << "of a run that goes on";
  Assignments warm = cosine;
  warm.insert(warm.end(), {{"lr_warmup", "10"}, {"lr_warmup_start", "0.5"}});
  EXPECT_EQ(factor(warm, 0), 0.5);
  EXPECT_NEAR(factor(warm, 8), 0.9, 1e-15);
  EXPECT_EQ(factor(warm, 10), 1);
  EXPECT_NEAR(factor(warm, 30), 0.6, 1e-15) << "40 rounds are left to it";
  EXPECT_EQ(factor({{"lr_warmup", "4"}}, 4), 1) << "ahead of a constant rate";
}

TEST(TrainOptionsTest, ACosineKeepsItsPeriodInARunThatGoesOn) {
  const Resolved first({{"lr_schedule", "cosine"}, {"lr_final", "0.1"}, {"lr_warmup", "2"}}, 12);
  EXPECT_EQ(first.options.entry("train.lr_period").print(), "10");
  const Resolved longer({{"lr_schedule", "cosine"},
                         {"lr_final", "0.1"},
                         {"lr_warmup", "2"},
                         {"lr_period", first.options.entry("train.lr_period").print()}},
                        24);
  for (std::int64_t t = 0; t < 12; ++t) {
    EXPECT_EQ(longer.train.lr_factor(t), first.train.lr_factor(t));
  }
}

}  // namespace
}  // namespace fedhpc
