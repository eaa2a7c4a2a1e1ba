#include <algorithm>
#include <cstdio>
#include <sstream>

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
#include "app/configuration.hpp"

namespace fedhpc {

namespace {

/// Enough of a configuration to make a method and its keys: some need edges.
std::vector<Assignment> keys_of(const std::string& method) {
  const Origin help{Level::Stored, "help"};
  return {{"algorithm.name", method, help}, {"topology.edges", "1", help}};
}

bool own_of_method(const OptionSet::Entry& entry) {
  return (entry.key.starts_with("algorithm.") && entry.key != "algorithm.name") ||
         entry.key.starts_with("server.");
}

/// A key as one or several methods declare it.
struct KnownKey {
  OptionSet::Entry entry;
  std::vector<std::string> methods = {};
  /// Words of conditions, and the methods with which the key has them.
  std::vector<std::pair<std::string, std::vector<std::string>>> conditions = {};

  void add(const std::string& method, const std::vector<Condition>& of_method) {
    methods.push_back(method);
    for (const Condition& condition : of_method) {
      const auto same = [&](const auto& one) { return one.first == condition.words; };
      auto known = std::ranges::find_if(conditions, same);
      if (known == conditions.end()) known = conditions.insert(known, {condition.words, {}});
      known->second.push_back(method);
    }
  }

  std::string section() const { return entry.key.substr(0, entry.key.find('.')); }
  std::string name() const { return entry.key.substr(entry.key.find('.') + 1); }
};

/// Every key there is, section by section: those of all runs, then those of the methods, each
/// meaning once.
std::vector<KnownKey> known_keys() {
  std::vector<KnownKey> keys;
  for (const std::string& method : algorithm_registry().names()) {
    const Config config(keys_of(method), "help.ini");
    for (const OptionSet::Entry& entry : config.options().entries()) {
      const bool own = own_of_method(entry);
      const auto same = [&](const KnownKey& known) {
        return known.entry.key == entry.key &&
               (!own || (known.entry.help == entry.help && known.entry.allowed == entry.allowed &&
                         known.entry.default_text == entry.default_text));
      };
      auto known = std::find_if(keys.begin(), keys.end(), same);
      if (known == keys.end()) known = keys.insert(keys.end(), KnownKey{entry});
      known->add(method, entry.conditions);
    }
  }
  std::vector<std::string> sections;
  for (const KnownKey& key : keys) {
    if (std::find(sections.begin(), sections.end(), key.section()) == sections.end()) {
      sections.push_back(key.section());
    }
  }
  const auto place = [&](const KnownKey& key) {
    const auto section = std::find(sections.begin(), sections.end(), key.section());
    return std::pair{section - sections.begin(), own_of_method(key.entry) ? key.entry.key : ""};
  };
  std::stable_sort(keys.begin(), keys.end(),
                   [&](const KnownKey& a, const KnownKey& b) { return place(a) < place(b); });
  return keys;
}

void print_key(std::ostream& out, const OptionSet::Entry& entry) {
  out << entry.key << "\n  " << entry.help << "\n  allowed: " << entry.allowed
      << "\n  default: " << (entry.default_text.empty() ? "not set" : entry.default_text) << "\n";
}

/// Prints the keys that `name` stands for: all of them, those of a section, or those of this name
/// in any section. Returns whether there are any.
bool print_matching_keys(std::ostream& out, const std::vector<KnownKey>& keys,
                         const std::string& name) {
  std::string section;
  bool printed = false;
  for (const KnownKey& key : keys) {
    const bool of_section = name == key.section() || name == key.section() + ".";
    const bool grouped = name == "keys" || of_section;
    if (!grouped && name != key.entry.key && name != key.name()) continue;
    if (grouped && section != key.section()) {
      section = key.section();
      out << (printed ? "\n" : "") << "[" << section << "]\n";
    }
    print_key(out, key.entry);
    for (const auto& [words, methods] : key.conditions) {
      const std::string of = methods == key.methods ? "" : concat(" (", join(methods), ")");
      out << "  acts with: " << words << of << "\n";
    }
    if (own_of_method(key.entry)) out << "  methods: " << join(key.methods) << "\n";
    printed = true;
  }
  return printed;
}

/// Whether `name` is that of a command, whose help is printed.
bool print_command(std::ostream& out, const std::string& name, std::vector<std::string>& known) {
  for (const CommandHelp& command : kCommandHelp) {
    known.emplace_back(command.name);
    if (name != command.name) continue;
    out << command.text;
    if (name != "resume") return true;
    for (const std::string_view key : keys_to_change_on_resume()) {
      out << "  " << key << "\n";
    }
    return true;
  }
  return false;
}

/// Whether `name` is in a registry, or in several, whose sentences are printed.
bool print_registered(std::ostream& out, const std::string& name, std::vector<std::string>& known) {
  bool found = false;
  for (const Kind& kind : kinds()) {
    for (const auto& [entry, sentence] : kind.listing) {
      known.push_back(entry);
      if (entry != name) continue;
      found = true;
      const std::string choice =
          kind.key.empty() ? "" : concat("; choose it with ", kind.key, "=", name);
      out << name << " (" << kind.singular << choice << ")\n  " << sentence << "\n";
      if (kind.name != "algorithms") continue;
      const Config config(keys_of(name), "help.ini");
      for (const OptionSet::Entry& key : config.options().entries()) {
        if (!own_of_method(key)) continue;
        print_key(out, key);
        for (const Condition& one : key.conditions) out << "  acts with: " << one.words << "\n";
      }
    }
  }
  return found;
}

}  // namespace

std::vector<Kind> kinds() {
  return {{"algorithms", "algorithm", "algorithm.name", algorithm_registry().listing()},
          {"models", "model", "model.name", model_registry().listing()},
          {"datasets", "data set", "data.name", dataset_registry().listing()},
          {"partitioners", "partitioner", "data.partition", partitioner_registry().listing()},
          {"factorisations", "factorisation", "model.factorisation",
           factorisation_registry().listing()},
          {"codecs", "codec", "", codec_registry().listing()}};
}

int list_command(const Arguments& given) {
  const Arguments arguments = load_plugins(given, "list");
  std::vector<std::string> names;
  for (const Kind& kind : kinds()) {
    names.push_back(kind.name);
    if (!arguments.empty() && (arguments.size() != 1 || arguments.front() != kind.name)) continue;
    std::vector<std::string> entries;
    for (const auto& [name, sentence] : kind.listing) {
      entries.push_back(name);
      if (!arguments.empty()) std::printf("%s\t%s\n", name.c_str(), sentence.c_str());
    }
    if (!arguments.empty()) return 0;
    std::printf("%s\t%s\n", kind.name.c_str(), join(entries).c_str());
  }
  if (arguments.empty()) return 0;
  throw ConfigError(
      concat("fedhpc list got '", join(arguments, " "), "'; allowed: one of: ", join(names),
             suggestion(arguments.size() == 1 ? nearest(arguments.front(), names) : "")));
}

std::string help_text(const std::string& name) {
  std::ostringstream out;
  std::vector<std::string> known;
  if (print_command(out, name, known)) return out.str();
  const bool registered = print_registered(out, name, known);
  const std::vector<KnownKey> keys = known_keys();
  if (print_matching_keys(out, keys, name) || registered) return out.str();
  for (const KnownKey& key : keys) known.push_back(key.entry.key);
  throw ConfigError(
      concat("no help on '", name, "'",
             suggestion(likely_key(name, known), "; 'fedhpc help keys' lists all keys")));
}

int help_command(const Arguments& given) {
  const Arguments arguments = load_plugins(given, "help");
  if (arguments.size() != 1) throw ConfigError("fedhpc help takes one name: fedhpc help NAME");
  std::fputs(help_text(arguments.front()).c_str(), stdout);
  return 0;
}

}  // namespace fedhpc
