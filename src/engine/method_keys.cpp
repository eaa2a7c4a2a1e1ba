#include "fedhpc/engine/method_keys.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "fedhpc/core/error.hpp"
#include "fedhpc/training/options.hpp"

namespace fedhpc {

namespace {

constexpr std::string_view kSection = "algorithm.";

/// Keys below `algorithm` that mean the same in every method that has them.
constexpr std::array<std::string_view, 8> kOfAllMethods{
    "algorithm.codec",          "algorithm.k",         "algorithm.codec_fraction",
    "algorithm.codec_levels",   "algorithm.weighting", "algorithm.downlink_codec",
    "algorithm.error_feedback", "algorithm.codec_rank"};

/// A key that methods declare: below `algorithm`, or of the server's optimizer.
bool is_of_methods(std::string_view key) {
  return (key.starts_with(kSection) && key != "algorithm.name") || key.starts_with("server.");
}

/// A key that means the same in every method that has it.
bool is_shared(std::string_view key) {
  return key.starts_with("server.") ||
         std::find(kOfAllMethods.begin(), kOfAllMethods.end(), key) != kOfAllMethods.end();
}

/// The keys that methods declare. Made when asked for.
class MethodTables {
 public:
  bool has(const std::string& method, const std::string& key) {
    return is_of_methods(key) && of(method).contains(key);
  }

  void check(const std::string& method, const Assignment& one) {
    of(method).assign(one.key, one.value, one.origin);
  }

  std::vector<std::string> keys(const std::string& method) {
    std::vector<std::string> keys;
    for (const OptionSet::Entry& entry : of(method).entries()) {
      if (entry.key.starts_with(kSection)) keys.push_back(entry.key);
    }
    return keys;
  }

  /// The methods that have this key.
  std::vector<std::string> with(const std::string& key) {
    std::vector<std::string> methods;
    for (const std::string& name : algorithm_registry().names()) {
      try {
        if (has(name, key)) methods.push_back(name);
      } catch (const std::exception&) {
        // A method of somebody's own that cannot declare its keys says so when it is run itself.
      }
    }
    return methods;
  }

 private:
  struct Table {
    std::unique_ptr<Algorithm> algorithm;  // the options refer to its members
    TrainOptions train;                    // some methods say when these act
    OptionSet options;
  };

  OptionSet& of(const std::string& method) {
    std::unique_ptr<Table>& table = tables_[method];
    if (!table) {
      table = std::make_unique<Table>();
      table->algorithm = make_algorithm(method, "configuration");
      table->train.declare(table->options);
      declare_keys(*table->algorithm, method, table->options);
    }
    return table->options;
  }

  std::map<std::string, std::unique_ptr<Table>> tables_;
};

ConfigError unknown_key(const Assignment& one, const std::string& because) {
  return ConfigError(
      concat(one.origin.place, ": unknown key '", one.key, "' (value '", one.value, "')", because));
}

/// `algorithm.METHOD.KEY` as METHOD and `algorithm.KEY`; nothing for any other key.
std::optional<std::pair<std::string, std::string>> of_one_method(const std::string& key) {
  if (!key.starts_with(kSection)) return std::nullopt;
  const std::size_t dot = key.find('.', kSection.size());
  if (dot == std::string::npos) return std::nullopt;
  return std::pair{key.substr(kSection.size(), dot - kSection.size()),
                   std::string(kSection) + key.substr(dot + 1)};
}

/// Tells what a later assignment of the command line overrides. It is checked all the same.
void tell_overridden(const std::vector<Assignment>& given, std::vector<std::string>& notes) {
  for (auto one = given.begin(); one != given.end(); ++one) {
    if (one->origin.level != Level::CommandLine) continue;
    const auto same = [&](const Assignment& other) {
      return other.origin.level == Level::CommandLine && other.key == one->key;
    };
    if (std::none_of(one + 1, given.end(), same)) continue;
    const auto last = std::find_if(given.rbegin(), given.rend(), same);
    notes.push_back(concat("key '", one->key, "' is given more than once on the command line; '",
                           last->value, "', the last, counts and '", one->value, "' does not"));
  }
}

/// The methods that the configuration file and its bases name.
std::map<Level, std::string> named_methods(const std::vector<Assignment>& given) {
  std::map<Level, std::string> named;
  for (const Assignment& one : given) {
    if (one.key != "algorithm.name" || !is_of_file(one.origin.level)) continue;
    make_algorithm(one.value, one.origin.place);  // or a refusal
    named[one.origin.level] = one.value;
  }
  return named;
}

/// The method whose plain keys stand at `level`. Those of a file are of the method that it or its
/// nearest base names, else of the one that the file which starts from it names; all others are of
/// the chosen one.
const std::string& owner_of(Level level, const std::map<Level, std::string>& named,
                            const std::string& chosen) {
  if (!is_of_file(level) || named.empty()) return chosen;
  const auto above = named.upper_bound(level);
  return (above == named.begin() ? above : std::prev(above))->second;
}

/// A key of one method, under its plain name.
Assignment plain(const Assignment& one, const std::string& method, const std::string& key,
                 MethodTables& tables) {
  const std::vector<std::string> methods = algorithm_registry().names();
  if (std::find(methods.begin(), methods.end(), method) == methods.end()) {
    throw unknown_key(
        one, concat(": there is no method '", method, "'",
                    suggestion(nearest(method, methods), "; 'fedhpc list algorithms' lists them")));
  }
  if (!tables.has(method, key)) {
    throw unknown_key(one,
                      concat(": method ", method, " has no such key",
                             suggestion(nearest(key, tables.keys(method)),
                                        concat("; 'fedhpc help ", method, "' lists its keys"))));
  }
  Assignment acting{key, one.value, one.origin};
  acting.origin.place += concat(" (", one.key, ")");
  tables.check(method, acting);
  return acting;
}

/// Refuses a plain key that `method` lacks and others have.
void require_own(const Assignment& one, const std::string& method, MethodTables& tables) {
  if (tables.has(method, one.key)) return;
  const std::vector<std::string> others = tables.with(one.key);
  if (others.empty()) return;  // the option table knows the nearest key
  throw unknown_key(
      one, concat(": method ", method, " has no such key; methods that have it: ", join(others)));
}

/// Throws ConfigError unless a key is section.name, as a configuration, a command line and a result
/// file can hold it.
void require_key(const OptionSet::Entry& entry) {
  const std::string_view key = entry.key;
  const std::size_t dot = key.find('.');
  const auto is_word = [](std::string_view word) {
    return !word.empty() && std::islower(static_cast<unsigned char>(word.front())) != 0 &&
           word.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == word.npos;
  };
  if (dot != key.npos && is_word(key.substr(0, dot)) && is_word(key.substr(dot + 1))) return;
  throw ConfigError(concat("key '", key, "' cannot be declared: a key is section.name, each of ",
                           "lower-case letters, digits and _"));
}

/// Throws ConfigError where a key acts under a condition on a key that there is not.
void require_known_keys(const OptionSet& options) {
  std::vector<std::string> keys;
  for (const OptionSet::Entry& entry : options.entries()) keys.push_back(entry.key);
  for (const OptionSet::Entry& entry : options.entries()) {
    for (const Condition& condition : entry.conditions) {
      for (const std::string& key : condition.keys) {
        if (options.contains(key)) continue;
        throw ConfigError(concat(entry.key, " acts where ", condition.words,
                                 ", and there is no key '", key, "'",
                                 suggestion(likely_key(key, keys))));
      }
    }
  }
}

}  // namespace

void declare_keys(Algorithm& method, const std::string& name, OptionSet& options) {
  try {
    const auto before = static_cast<std::ptrdiff_t>(options.entries().size());
    method.declare(options);
    std::for_each(options.entries().begin() + before, options.entries().end(), require_key);
    if (options.contains("algorithm.name")) require_known_keys(options);
  } catch (const ConfigError& error) {
    throw ConfigError(concat("method '", name, "': ", error.what()));
  }
}

ActingAssignments acting_assignments(const std::vector<Assignment>& given,
                                     const std::string& method) {
  ActingAssignments acting;
  MethodTables tables;
  const std::map<Level, std::string> named = named_methods(given);
  std::vector<Assignment> of_method;  // behind the plain ones, so that they win
  std::map<Level, std::vector<std::string>> left_out;
  std::map<Level, std::string> files;
  tell_overridden(given, acting.notes);
  for (const Assignment& one : given) {
    if (const auto of_one = of_one_method(one.key)) {
      Assignment own = plain(one, of_one->first, of_one->second, tables);
      if (of_one->first == method) of_method.push_back(std::move(own));
      continue;
    }
    if (is_of_methods(one.key)) {
      const std::string& owner = owner_of(one.origin.level, named, method);
      require_own(one, owner, tables);
      if (owner != method && tables.has(owner, one.key) &&
          !(is_shared(one.key) && tables.has(method, one.key))) {
        tables.check(owner, one);
        left_out[one.origin.level].push_back(one.key);
        files[one.origin.level] = one.origin.file;
        continue;
      }
    }
    acting.assignments.push_back(one);
  }
  acting.assignments.insert(acting.assignments.end(), of_method.begin(), of_method.end());
  for (const auto& [level, keys] : left_out) {
    const std::string file =
        level == Level::File ? "the configuration" : concat("base '", files[level], "'");
    acting.notes.push_back(concat(file, " is for algorithm.name = ", owner_of(level, named, method),
                                  "; with ", method,
                                  " these keys of it are left out: ", join(keys)));
  }
  return acting;
}

}  // namespace fedhpc
