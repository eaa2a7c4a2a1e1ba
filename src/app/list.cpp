#include <cstdio>

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/app/commands.hpp"
#include "fedhpc/codecs/codec.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/data/dataset.hpp"
#include "fedhpc/data/partition.hpp"
#include "fedhpc/engine/config.hpp"
#include "fedhpc/engine/resume.hpp"
#include "fedhpc/factorisations/factorisation.hpp"
#include "fedhpc/models/model.hpp"

#include "app/command_help.hpp"

namespace fedhpc {

namespace {

/// Enough of a configuration to make a method and its keys: some need edges.
std::vector<Assignment> keys_of(const std::string& method) {
  const Origin help{Level::Stored, "help"};
  return {{"algorithm.name", method, help}, {"topology.edges", "1", help}};
}

using Registry = std::vector<std::pair<std::string, std::string>>;  // name, sentence

Registry algorithms() {
  Registry registry;
  for (const AlgorithmInfo& info : algorithm_registry()) {
    registry.emplace_back(info.name, info.citation);
  }
  return registry;
}

struct Kind {
  std::string name;  ///< as in `fedhpc list NAME`
  std::string singular;
  std::string key;  ///< the key that takes one of its names; empty: each method has its own
  Registry registry;
};

std::vector<Kind> kinds() {
  return {{"algorithms", "algorithm", "algorithm.name", algorithms()},
          {"models", "model", "model.name", model_registry()},
          {"datasets", "data set", "data.name", dataset_registry()},
          {"partitioners", "partitioner", "data.partition", partitioner_registry()},
          {"factorisations", "factorisation", "model.factorisation", factorisation_registry()},
          {"codecs", "codec", "", codec_registry()}};
}

void print_key(const OptionSet::Entry& entry) {
  std::printf("%s\n  %s\n  allowed: %s\n  default: %s\n", entry.key.c_str(), entry.help.c_str(),
              entry.allowed.c_str(),
              entry.default_text.empty() ? "not set" : entry.default_text.c_str());
  for (const Condition& condition : entry.conditions) {
    std::printf("  acts with: %s\n", condition.words.c_str());
  }
}

/// Every key there is: those of all runs and those of each method.
std::vector<std::string> print_matching_keys(const std::string& name) {
  std::vector<std::string> known;
  bool printed = false;
  for (const AlgorithmInfo& info : algorithm_registry()) {
    const Config config(keys_of(info.name), "help.ini");
    for (const OptionSet::Entry& entry : config.options().entries()) {
      const bool own = entry.key.starts_with("algorithm.") && entry.key != "algorithm.name";
      if (!own && &info != &algorithm_registry().front()) continue;
      known.push_back(entry.key);
      if (name != "keys" && entry.key != name) continue;
      if (own) std::printf("(method %s) ", info.name.c_str());
      print_key(entry);
      printed = true;
    }
  }
  return printed ? std::vector<std::string>{} : known;
}

}  // namespace

int list_command(const Arguments& arguments) {
  std::vector<std::string> names;
  for (const Kind& kind : kinds()) {
    names.push_back(kind.name);
    if (arguments.size() != 1 || arguments.front() != kind.name) continue;
    for (const auto& [name, sentence] : kind.registry) {
      std::printf("%s\t%s\n", name.c_str(), sentence.c_str());
    }
    return 0;
  }
  const std::string given =
      arguments.empty() ? std::string("nothing") : concat("'", join(arguments, " "), "'");
  throw ConfigError(
      concat("fedhpc list got ", given, "; allowed: one of: ", join(names),
             suggestion(arguments.size() == 1 ? nearest(arguments.front(), names) : "")));
}

int help_command(const Arguments& arguments) {
  if (arguments.size() != 1) throw ConfigError("fedhpc help takes one name: fedhpc help NAME");
  const std::string& name = arguments.front();
  std::vector<std::string> known;
  for (const CommandHelp& command : kCommandHelp) {
    known.emplace_back(command.name);
    if (name != command.name) continue;
    std::fputs(command.text, stdout);
    if (name != "resume") return 0;
    for (const std::string_view key : keys_to_change_on_resume()) {
      std::printf("  %s\n", std::string(key).c_str());
    }
    return 0;
  }
  bool found = false;
  for (const Kind& kind : kinds()) {
    for (const auto& [entry, sentence] : kind.registry) {
      known.push_back(entry);
      if (entry != name) continue;
      found = true;
      const std::string choice =
          kind.key.empty() ? "" : concat("; choose it with ", kind.key, "=", name);
      std::printf("%s (%s%s)\n  %s\n", name.c_str(), kind.singular.c_str(), choice.c_str(),
                  sentence.c_str());
      if (kind.name != "algorithms") continue;
      const Config config(keys_of(name), "help.ini");
      for (const OptionSet::Entry& key : config.options().entries()) {
        if (key.key.starts_with("algorithm.") && key.key != "algorithm.name") print_key(key);
      }
    }
  }
  if (found) return 0;
  const std::vector<std::string> keys = print_matching_keys(name);
  if (keys.empty()) return 0;
  known.insert(known.end(), keys.begin(), keys.end());
  throw ConfigError(
      concat("no help on '", name, "'",
             suggestion(likely_key(name, known), "; 'fedhpc help keys' lists all keys")));
}

}  // namespace fedhpc
