// Every key of every method, set where it acts and where it does not.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/engine/config.hpp"

namespace fedhpc {
namespace {

Assignment given(Level level, const std::string& key, const std::string& value) {
  return {key, value, {level, level == Level::CommandLine ? "command line" : "run.ini:1"}};
}

Assignment in_file(const std::string& key, const std::string& value) {
  return given(Level::File, key, value);
}

std::string refusal(const std::vector<Assignment>& assignments) {
  try {
    const Config config(assignments, "run.ini");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

std::vector<Assignment> least_of(const auto& info) {
  std::vector<Assignment> lines{in_file("algorithm.name", info.name)};
  if (info.make()->traits().tiers == Tiers::ClientEdgeCloud) {
    lines.push_back(in_file("topology.edges", "2"));
  }
  return lines;
}

/// Values that may decide about other keys; "": left alone.
std::vector<std::string> values_of(const OptionSet::Entry& entry) {
  std::vector<std::string> values = entry.choices;
  if (values.empty()) values = {"0", "0.5", entry.default_text == "1" ? "2" : "1"};
  values.emplace_back("");
  return values;
}

/// `least` with each combination of values of `keys`.
std::vector<std::vector<Assignment>> settings(const std::vector<Assignment>& least,
                                              const std::set<std::string>& keys,
                                              const OptionSet& options) {
  std::vector<std::vector<Assignment>> all{least};
  for (const std::string& key : keys) {
    std::vector<std::vector<Assignment>> more;
    for (const std::vector<Assignment>& lines : all) {
      for (const std::string& value : values_of(options.entry(key))) {
        more.push_back(lines);
        if (!value.empty()) more.back().push_back(in_file(key, value));
      }
    }
    all = std::move(more);
  }
  return all;
}

/// The keys that decide about `entry`, and those that decide about them.
void add_deciding(const OptionSet::Entry& entry, const OptionSet& options,
                  std::set<std::string>& keys) {
  for (const Condition& condition : entry.conditions) {
    for (const std::string& key : condition.keys) {
      if (keys.insert(key).second) add_deciding(options.entry(key), options, keys);
    }
  }
}

struct Seen {
  bool acts = false;
  bool idle = false;
};

/// Sets the key in every setting of the keys that decide about it.
void try_everywhere(const std::vector<Assignment>& least, const OptionSet::Entry& entry,
                    const OptionSet& options, Seen& seen) {
  const std::string value = entry.default_text.empty() ? "3" : entry.default_text;
  std::set<std::string> keys;
  add_deciding(entry, options, keys);
  keys.erase("algorithm.name");  // each method in its turn
  for (std::vector<Assignment> lines : settings(least, keys, options)) {
    bool acts = false;
    try {
      const Config without(lines, "run.ini");
      acts = without.options().acts(without.options().entry(entry.key));
    } catch (const ConfigError&) {
      continue;  // the other keys alone do not go together
    }
    (acts ? seen.acts : seen.idle) = true;
    lines.push_back(in_file(entry.key, value));
    const std::string message = refusal(lines);
    if (message.find("cannot both count") != std::string::npos) continue;  // two ways to say one
    if (acts) {
      EXPECT_EQ(message.find("has no effect"), std::string::npos) << message;
    } else {
      EXPECT_NE(message.find("key '" + entry.key + "' = '"), std::string::npos) << message;
      EXPECT_NE(message.find("has no effect with"), std::string::npos) << message;
      EXPECT_NE(message.find("it needs"), std::string::npos) << message;
    }
  }
}

/// Whether it depends on the method when the key acts.
bool names_a_method(const OptionSet::Entry& entry) {
  for (const Condition& condition : entry.conditions) {
    for (const std::string& key : condition.keys) {
      if (key.starts_with("algorithm.")) return true;
    }
  }
  return false;
}

TEST(ActingKeys, EveryConditionHoldsSomewhereAndIsHeldToElsewhere) {
  std::map<std::string, Seen> common;
  std::set<std::string> always;  // with some method
  for (const auto& info : algorithm_registry()) {
    const std::vector<Assignment> least = least_of(info);
    const Config config(least, "run.ini");
    for (const OptionSet::Entry& entry : config.options().entries()) {
      const bool own = entry.key.starts_with("algorithm.");
      if (entry.conditions.empty()) {
        if (!own) always.insert(entry.key);
        continue;
      }
      if (!own && !names_a_method(entry) && &info != &*algorithm_registry().begin()) continue;
      Seen here;
      try_everywhere(least, entry, config.options(), own ? here : common[entry.key]);
      if (!own) continue;
      EXPECT_TRUE(here.acts) << info.name << " " << entry.key;
      EXPECT_TRUE(here.idle) << info.name << " " << entry.key;
    }
  }
  common["store.device_budget"].acts = true;  // where there is a GPU
  common["train.lr_milestones"].acts = true;  // the schedule needs some: TrainOptions' own test
  common["privacy.delta"].acts = true;        // noise needs a weighting: privacy_test
  EXPECT_GT(common.size(), 30U);
  for (const auto& [key, seen] : common) {
    EXPECT_TRUE(seen.acts || always.contains(key)) << key;
    EXPECT_TRUE(seen.idle) << key;
  }
}

TEST(ActingKeys, OnesOwnLevelIsRefusedAndAHigherOneIsNoted) {
  const Assignment alpha = in_file("data.alpha", "0.1");
  const Assignment drawn = in_file("data.partition", "dirichlet");
  EXPECT_EQ(refusal({alpha, drawn}), "accepted");
  EXPECT_NE(refusal({alpha}).find("run.ini:1: key 'data.alpha' = '0.1' has no effect with "
                                  "data.partition = iid; it needs data.partition = dirichlet"),
            std::string::npos)
      << refusal({alpha});
  const Config overruled({drawn, alpha, given(Level::CommandLine, "data.partition", "iid")},
                         "run.ini");
  ASSERT_EQ(overruled.notes().size(), 1U);
  EXPECT_NE(overruled.notes()[0].find("'data.alpha'"), std::string::npos);
  const std::vector<Assignment> swept{drawn, given(Level::CommandLine, "data.partition", "iid"),
                                      given(Level::CommandLine, "data.alpha", "0.1")};
  EXPECT_NE(refusal(swept).find("command line: key 'data.alpha'"), std::string::npos);
}

TEST(ActingKeys, AnotherMethodOnTheCommandLinePutsAFilesKeysOutOfAction) {
  const Assignment fedavg = given(Level::CommandLine, "algorithm.name", "fedavg");
  const Config config({in_file("algorithm.name", "tdpfed"), in_file("model.factorisation", "cp"),
                       in_file("model.rank", "3"), in_file("train.momentum", "0.9"), fedavg,
                       given(Level::CommandLine, "train.optimizer", "adam")},
                      "run.ini");
  EXPECT_EQ(config.notes().size(), 3U);
  EXPECT_FALSE(config.factorisation.factorises());
  EXPECT_TRUE(config.factorisation.ranks.empty());
  EXPECT_EQ(config.train.momentum, 0);
  const Config again(parse_ini(config.to_ini(), "stored"), "run.ini");
  EXPECT_EQ(again.to_ini(), config.to_ini());
}

/// The values in force, by key.
std::map<std::string, std::string> values_in(const Config& config) {
  std::map<std::string, std::string> values;
  for (const OptionSet::Entry& entry : config.options().entries()) {
    values[entry.key] = entry.print();
  }
  return values;
}

TEST(ActingKeys, WhatIsOutOfActionChangesNoValueOfAnyMethod) {
  for (const auto& info : algorithm_registry()) {
    const Config least(least_of(info), "run.ini");
    std::vector<Assignment> plain;  // all that acts, from the command line
    for (const Assignment& one : parse_ini(least.to_ini(), "plain")) {
      plain.push_back(given(Level::CommandLine, one.key, one.value));
    }
    const std::map<std::string, std::string> expected = values_in(Config(plain, "run.ini"));
    std::vector<Assignment> all = plain;  // and in a base of the file whatever does not
    std::size_t idle = 0;
    for (const OptionSet::Entry& entry : least.options().entries()) {
      if (least.options().acts(entry)) continue;
      for (const std::string& value : values_of(entry)) {
        if (value.empty() || value == entry.print()) continue;
        std::vector<Assignment> with = all;
        with.push_back(given(Level::FarthestBase, entry.key, value));
        if (refusal(with) != "accepted") continue;
        all = with;
        ++idle;
        break;
      }
    }
    EXPECT_GT(idle, 20U) << info.name;
    const Config config(all, "run.ini");
    EXPECT_EQ(values_in(config), expected) << info.name;
    EXPECT_GE(config.notes().size(), idle) << info.name;
  }
}

TEST(ActingKeys, ASeedOfDataHoldsValidationSamples) {
  const Assignment seed = in_file("data.seed", "3");
  const Assignment validation = in_file("data.validation_fraction", "0.2");
  const std::vector<std::vector<Assignment>> dealt = {
      {in_file("data.name", "mnist"), in_file("data.partition", "file"),
       in_file("data.partition_file", "parts.h5"), seed},
      {in_file("data.name", "hdf5"), in_file("data.file", "own.h5"),
       in_file("data.partition", "natural"), in_file("data.split", "official"), seed}};
  for (std::vector<Assignment> lines : dealt) {
    const std::string message = refusal(lines);
    EXPECT_NE(message.find("key 'data.seed' = '3' has no effect with"), std::string::npos)
        << message;
    EXPECT_NE(message.find("data.validation_fraction"), std::string::npos) << message;
    lines.push_back(validation);
    EXPECT_EQ(refusal(lines), "accepted");
  }
}

TEST(ActingKeys, AllOfThemAreNamedAtOnce) {
  const std::string message =
      refusal({in_file("data.alpha", "0.5"), in_file("algorithm.k", "16"),
               in_file("topology.edges", "0"), in_file("network.edge_cloud_mbps", "1")});
  for (const char* key :
       {"data.alpha", "algorithm.k", "topology.edges", "network.edge_cloud_mbps"}) {
    EXPECT_NE(message.find(key), std::string::npos) << message;
  }
}

TEST(ActingKeys, AStoredConfigurationMayHoldIdleOnes) {
  const Config config({given(Level::Stored, "data.alpha", "0.1")}, "run.ini");
  EXPECT_TRUE(config.notes().empty());
  EXPECT_EQ(config.to_ini().find("alpha"), std::string::npos);
  EXPECT_NE(config.to_ini().find("partition = iid"), std::string::npos);
}

std::vector<std::string> words_in(const std::string& text, char separator) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, separator);) words.push_back(word);
  return words;
}

/// "accepted", or why not; there may be no GPU here.
std::string refusal_of_file(const std::string& path, const std::string& overrides) {
  std::vector<Assignment> lines = read_ini(path);
  for (const std::string& word : words_in(overrides, ' ')) {
    const std::size_t equals = word.find('=');
    lines.push_back(given(Level::CommandLine, word.substr(0, equals), word.substr(equals + 1)));
  }
  const std::string message = refusal(lines);
  return message.find("key 'run.device' cannot be") == std::string::npos ? message : "accepted";
}

/// Whether a method in Python is needed, which tests/python runs.
bool is_of_python(const std::vector<Assignment>& lines) {
  return lookup(lines, "run.plugin", "").ends_with(".py");
}

TEST(ActingKeys, ShippedConfigurationsHaveNoIdleOnes) {
  const char* source = std::getenv("FEDHPC_SOURCE_DIR");
  if (source == nullptr) GTEST_SKIP() << "FEDHPC_SOURCE_DIR names no sources";
  const std::filesystem::path root = source;
  int files = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(root / "configs")) {
    const std::string folder = file.path().parent_path().filename();
    if (file.path().extension() != ".ini" || folder == "sweeps" || folder == "bases") continue;
    const std::string path = file.path().string();
    const std::vector<Assignment> lines = read_ini(path);
    if (!is_of_python(lines)) {
      EXPECT_EQ(refusal_of_file(path, ""), "accepted");
    }
    if (lookup(lines, "run.device", "") == "cuda" || is_of_python(lines)) continue;
    EXPECT_TRUE(Config(lines, path).notes().empty()) << path << ": a base has idle keys";
    ++files;
  }
  EXPECT_GT(files, 300);
  int rows = 0;
  for (const auto& table : std::filesystem::directory_iterator(root / "tools/papers")) {
    if (table.path().extension() != ".csv") continue;
    std::ifstream stream(table.path());
    std::string line;
    std::getline(stream, line);
    while (std::getline(stream, line)) {
      const std::vector<std::string> columns = words_in(line, ',');
      if (columns.at(11) == "waiting") continue;
      const auto config = root / "configs/papers" / table.path().stem() / columns.at(5);
      EXPECT_EQ(refusal_of_file(config.string(), columns.at(6)), "accepted") << line;
      ++rows;
    }
  }
  EXPECT_GT(rows, 300);
}

/// The largest value that the words allow; "": any.
std::string bound_in(const std::string& allowed) {
  const std::string words = " of at most ";
  const std::size_t place = allowed.find(words);
  if (place == std::string::npos) return "";
  const std::size_t begin = place + words.size();
  return allowed.substr(begin, allowed.find_first_not_of("0123456789", begin) - begin);
}

TEST(WholeNumbers, EachHasABoundThatItsRefusalNames) {
  const std::set<std::string> never_multiplied{"run.seed", "data.seed", "store.device_budget"};
  std::set<std::string> unbounded;
  for (const auto& info : algorithm_registry()) {
    const std::vector<Assignment> least = least_of(info);
    const Config config(least, "run.ini");
    for (const OptionSet::Entry& entry : config.options().entries()) {
      if (entry.allowed.find("whole number") == std::string::npos) continue;
      const auto with = [&](const std::string& value) {
        std::vector<Assignment> lines = least;
        lines.push_back(in_file(entry.key, value));
        return refusal(lines);
      };
      const std::string bound = bound_in(entry.allowed);
      std::vector<std::string> beyond{"9223372036854775808"};
      if (bound.empty()) {
        unbounded.insert(entry.key);
      } else {
        beyond.insert(beyond.end(), {std::to_string(std::stoll(bound) + 1), "4611686018427387904",
                                     "9223372036854775807"});
      }
      for (const std::string& value : beyond) {
        const std::string message = with(value);
        EXPECT_NE(message.find("'" + entry.key + "' cannot be"), std::string::npos) << message;
        EXPECT_NE(message.find(bound), std::string::npos) << message;
      }
      const std::string at_bound = with(bound.empty() ? "9223372036854775807" : bound);
      EXPECT_TRUE(at_bound == "accepted" || at_bound.find(entry.key) != std::string::npos)
          << at_bound;
    }
  }
  EXPECT_EQ(unbounded, never_multiplied);
}

}  // namespace
}  // namespace fedhpc
