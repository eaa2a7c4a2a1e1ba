#include "fedhpc/engine/config.hpp"

#include <functional>

#include <gtest/gtest.h>

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/core/error.hpp"

namespace fedhpc {
namespace {

Assignment in_file(const std::string& key, const std::string& value) {
  return {key, value, {Level::File, "run.ini:1"}};
}
Assignment on_command_line(const std::string& key, const std::string& value) {
  return {key, value, {Level::CommandLine, "command line"}};
}

std::string refusal(const std::vector<Assignment>& assignments) {
  try {
    const Config config(assignments, "run.ini");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Config, TheHigherLevelOfStepsAndEpochsWins) {
  const Config steps(
      {in_file("train.local_epochs", "3"), on_command_line("train.local_steps", "7")}, "run.ini");
  EXPECT_EQ(steps.train.local_steps, 7);
  EXPECT_EQ(steps.train.local_epochs, 0);
  const Config epochs({in_file("train.local_steps", "7")}, "run.ini");
  EXPECT_EQ(epochs.train.local_steps, 7);
  EXPECT_EQ(epochs.train.local_epochs, 0);  // its default gives way
  const Config fallback({}, "run.ini");
  EXPECT_EQ(fallback.train.local_epochs, 1);
}

TEST(Config, RefusesStepsAndEpochsAtOneLevel) {
  const std::string both =
      refusal({in_file("train.local_steps", "7"), in_file("train.local_epochs", "3")});
  EXPECT_NE(both.find("train.local_steps = 7"), std::string::npos) << both;
  EXPECT_NE(both.find("train.local_epochs = 3"), std::string::npos) << both;
  const std::string none = refusal({in_file("train.local_epochs", "0")});
  EXPECT_NE(none.find("train.local_steps"), std::string::npos) << none;
}

TEST(Config, DataSeedFollowsTheRunsSeed) {
  EXPECT_EQ(Config({in_file("run.seed", "9")}, "run.ini").data.seed, 9);
  EXPECT_EQ(Config({in_file("run.seed", "9"), in_file("data.seed", "4")}, "run.ini").data.seed, 4);
}

TEST(Config, ItsIniRepeatsIt) {
  const Config first({in_file("run.seed", "9"), in_file("train.local_steps", "7"),
                      in_file("train.lr", "0.1"), in_file("model.hidden", "30,20"),
                      in_file("run.save", "init,draws"), in_file("train.block", "auto")},
                     "run.ini");
  const Config second(parse_ini(first.to_ini(), "config"), "other.ini");
  EXPECT_EQ(second.to_ini(), first.to_ini());
  EXPECT_EQ(second.run.output, "run.h5");
  EXPECT_EQ(second.train.lr, 0.1);
}

TEST(Config, TheIniOfEveryMethodRepeatsIt) {
  for (const auto& info : algorithm_registry()) {
    std::vector<Assignment> lines{in_file("algorithm.name", info.name)};
    if (info.make()->traits().tiers == Tiers::ClientEdgeCloud)
      lines.push_back(in_file("topology.edges", "2"));
    const Config first(lines, "run.ini");
    const Config second(parse_ini(first.to_ini(), "config"), "other.ini");
    EXPECT_EQ(second.to_ini(), first.to_ini()) << info.name;
  }
}

TEST(Config, TheNetworkIsOffUntilAKeyIsSet) {
  EXPECT_FALSE(NetworkModel(Config({}, "run.ini").network).on());
  const Config flat({in_file("network.client_cloud_mbps", "3")}, "run.ini");
  EXPECT_EQ(flat.network.client_cloud_mbps, std::vector<double>{3});
  const Config config(
      {in_file("algorithm.name", "hierfavg"), in_file("topology.edges", "2"),
       in_file("network.client_edge_mbps", "1"), in_file("network.edge_cloud_mbps", "2"),
       in_file("network.latency_ms", "4"), in_file("network.step_seconds", "0.5")},
      "run.ini");
  EXPECT_EQ(config.network.client_edge_mbps, std::vector<double>{1});
  EXPECT_EQ(config.network.edge_cloud_mbps, std::vector<double>{2});
  EXPECT_EQ(config.network.latency_ms, 4);
  EXPECT_EQ(config.network.step_seconds, std::vector<double>{0.5});
  for (const std::string key :
       {"client_edge_mbps", "edge_cloud_mbps", "client_cloud_mbps", "latency_ms", "step_seconds"}) {
    const std::string message = refusal({in_file("network." + key, "-1")});
    EXPECT_NE(message.find("'network." + key + "'"), std::string::npos) << message;
    EXPECT_NE(message.find("at least 0"), std::string::npos) << message;
  }
}

TEST(Config, ClientsMayDifferInWhatTheyHaveOfTheNetwork) {
  const Config config({in_file("network.client_cloud_mbps", "100, 20,5"),
                       in_file("network.step_seconds", "0.1,2.5e-3")},
                      "run.ini");
  EXPECT_EQ(config.network.client_cloud_mbps, (std::vector<double>{100, 20, 5}));
  EXPECT_EQ(config.network.step_seconds, (std::vector<double>{0.1, 0.0025}));
  EXPECT_EQ(config.options().entry("network.client_cloud_mbps").print(), "100,20,5");
  for (const std::string wrong : {"1,,2", "1,", "1,-2", "1,x", "1 2", ""}) {
    const std::string message = refusal({in_file("network.step_seconds", wrong)});
    EXPECT_NE(message.find("numbers of at least 0, separated by commas"), std::string::npos)
        << wrong << ": " << message;
  }
  EXPECT_NE(refusal({in_file("network.latency_ms", "1,2")}), "") << "of any link and end";
}

TEST(Config, Dense32LosesInFloat64) {
  const std::vector<Assignment> feedback{in_file("algorithm.codec", "dense32"),
                                         in_file("algorithm.error_feedback", "ef21")};
  const std::vector<Assignment> gradients{in_file("algorithm.name", "fedcomloc"),
                                          in_file("algorithm.compress", "local"),
                                          in_file("algorithm.codec", "dense32")};
  for (std::vector<Assignment> keys : {feedback, gradients}) {
    EXPECT_NE(refusal(keys), "accepted") << "float32";
    keys.push_back(in_file("run.dtype", "float64"));
    EXPECT_EQ(refusal(keys), "accepted");
  }
}

TEST(Config, AutoBesideOtherLayersIsWhatTheMethodLeavesOut) {
  using Words = std::vector<std::string>;
  const auto excluded = [](const std::string& method, const std::string& words) {
    const Config config({in_file("algorithm.name", method), in_file("model.exclude", words)},
                        "run.ini");
    const Config again(parse_ini(config.to_ini(), "config"), "other.ini");
    EXPECT_EQ(again.factorisation.exclude, config.factorisation.exclude) << method << " " << words;
    return config.factorisation.exclude;
  };
  EXPECT_EQ(excluded("fedlmt", "auto"), (Words{"first", "last"}));
  EXPECT_EQ(excluded("fedlmt", "auto,fc2"), (Words{"first", "last", "fc2"}));
  EXPECT_EQ(excluded("fedlmt", "fc2,auto"), (Words{"fc2", "first", "last"}));
  EXPECT_EQ(excluded("tdpfed", "auto"), Words{"none"}) << "it leaves none out";
  EXPECT_EQ(excluded("tdpfed", "auto,fc2"), Words{"fc2"});
  EXPECT_EQ(excluded("fedlmt", "none"), Words{"none"});
  for (const char* words : {"none,fc2", "fc2,none", "auto,none"}) {
    EXPECT_EQ(refusal({in_file("algorithm.name", "fedlmt"), in_file("model.exclude", words)}),
              concat("run.ini:1: key 'model.exclude' cannot be '", words,
                     "' with other layers beside none; allowed: none alone"));
  }
}

TEST(Config, AKeyOfFactorisationsGivesWayToAMethodOfAHigherLevel) {
  const Config config({in_file("algorithm.name", "fedpara"), in_file("model.rank_bound", "full"),
                       on_command_line("algorithm.name", "fedlmt")},
                      "run.ini");
  EXPECT_EQ(config.factorisation.bound, RankBound::None);
  const std::string said =
      refusal({in_file("algorithm.name", "fedlmt"), in_file("model.rank_bound", "full")});
  EXPECT_NE(said.find("it needs model.factorisation = hadamard"), std::string::npos) << said;
}

TEST(Config, AnUnknownMethodNamesTheNearest) {
  const std::string message = refusal({in_file("algorithm.name", "fedavgg")});
  EXPECT_NE(message.find("'fedavgg'"), std::string::npos) << message;
  EXPECT_NE(message.find("did you mean 'fedavg'"), std::string::npos) << message;
}

TEST(Config, EveryKeyExplainsItself) {
  const Config config({}, "run.ini");
  for (const OptionSet::Entry& entry : config.options().entries()) {
    EXPECT_GT(entry.help.size(), 10U) << entry.key;
    EXPECT_GT(entry.allowed.size(), 3U) << entry.key;
  }
}

/// A method whose keys `declare` declares.
class Declares final : public Algorithm {
 public:
  using Keys = std::function<void(OptionSet&, double& value)>;
  explicit Declares(Keys keys) : keys_(std::move(keys)) {}
  void declare(OptionSet& options) override { keys_(options, value_); }
  void initialise(const Setup&) override {}
  void round(Round&) override {}
  void evaluate(Evaluation&) override {}
  void visit_state(StateVisitor&) override {}

 private:
  Keys keys_;
  double value_ = 0.5;
};

TEST(Config, NamesTheMethodWhoseKeysAreWrong) {
  const auto refused = [](const Declares::Keys& keys) {
    algorithm_registry().add("declares", "a method of this test",
                             [keys] { return std::make_unique<Declares>(keys); });
    return refusal({in_file("algorithm.name", "declares")});
  };
  const Bounds<double> bounds = between(0.0, 1.0);
  EXPECT_EQ(refused([&](OptionSet& options, double& value) {
              options.add("train.lr", value, bounds, "A rate");
            }),
            "method 'declares': key 'train.lr' cannot be declared: there is a key of this name");
  for (const char* key : {"pull", "algorithm.", ".pull", "algorithm.My pull", "algorithm.a=",
                          "algorithm.Pull", "algorithm.a.b", "Algorithm.a", "algorithm.2", ""}) {
    EXPECT_EQ(refused([&](OptionSet& options, double& value) {
                options.add(key, value, bounds, "A pull");
              }),
              concat("method 'declares': key '", key, "' cannot be declared: a key is ",
                     "section.name, each of lower-case letters, digits and _"));
  }
  EXPECT_EQ(
      refused([&](OptionSet& options, double& value) {
        options.add("algorithm.pull", value, bounds, "A pull").acts(where("train.lrs", {"1"}));
      }),
      "method 'declares': algorithm.pull acts where train.lrs = 1, and there is no key "
      "'train.lrs'; did you mean 'train.lr'?");
  EXPECT_EQ(refused([](OptionSet& options, double&) {
              options.acts("algorithm.nix", where("train.lr", {"1"}));
            }),
            "method 'declares': a condition is given to 'algorithm.nix', which is no key");
  EXPECT_EQ(refused([](OptionSet&, double&) {}), "accepted");
}

}  // namespace
}  // namespace fedhpc
