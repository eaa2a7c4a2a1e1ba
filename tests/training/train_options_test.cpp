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
  explicit Resolved(const Assignments& lines) {
    train.declare(options);
    int line = 0;
    for (const auto& [key, text] : lines) {
      options.assign("train." + key, text, {Level::File, "x.ini:" + std::to_string(++line)});
    }
    train.resolve(options);
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
      {{{"optimizer", "adam"}, {"momentum", "0.9"}}, "x.ini:2: key 'train.momentum'"},
      {{{"optimizer", "nesterov"}, {"nesterov", "false"}}, "x.ini:2: key 'train.nesterov'"},
      {{{"optimizer", "momentum"}, {"nesterov", "true"}}, "x.ini:2: key 'train.nesterov'"},
      {{{"nesterov", "true"}},
       "x.ini:1: key 'train.nesterov' cannot be 'true' with "
       "train.optimizer = sgd: it needs train.momentum above 0"}};
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

}  // namespace
}  // namespace fedhpc
