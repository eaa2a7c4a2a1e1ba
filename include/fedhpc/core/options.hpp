#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fedhpc {

/// Where a value comes from; a higher level wins. Stored: from the configuration that a checkpoint
/// holds, which may have keys that do not act. Each base of a file has a level of its own below
/// File, the farthest the lowest.
enum class Level : int { Default, Stored, FarthestBase, File = 1 << 20, CommandLine };

/// The level of the base of a file that has this level.
constexpr Level base_of(Level file) { return static_cast<Level>(static_cast<int>(file) - 1); }
/// Of a file or of one of its bases.
constexpr bool is_of_file(Level level) {
  return level >= Level::FarthestBase && level <= Level::File;
}
/// Written for this run, in a file or on the command line.
constexpr bool is_given(Level level) { return level >= Level::FarthestBase; }

/// A level and, for messages, the place: "run.ini:12" or "command line".
struct Origin {
  Level level = Level::Default;
  std::string place;
  std::string file = {};  ///< the configuration file that holds it; empty: none does
};

/// The largest count a key takes: products of two fit into 64 bits.
constexpr std::int64_t kLargestCount = (std::int64_t{1} << 31) - 1;

/// An interval of numbers a key accepts.
template <typename T>
struct Bounds {
  T low = std::numeric_limits<T>::lowest();
  T high = std::numeric_limits<T>::max();
  bool low_open = false;
  bool high_open = false;
};

template <typename T>
Bounds<T> at_least(T low) {
  return {.low = low};
}
template <typename T>
Bounds<T> above(T low) {
  return {.low = low, .low_open = true};
}
template <typename T>
Bounds<T> between(T low, T high) {
  return {.low = low, .high = high};
}
template <typename T>
Bounds<T> above_up_to(T low, T high) {
  return {.low = low, .high = high, .low_open = true};
}
template <typename T>
Bounds<T> from_below(T low, T high) {
  return {.low = low, .high = high, .high_open = true};
}

/// A count of at least `low`.
inline Bounds<std::int64_t> count_from(std::int64_t low) { return between(low, kLargestCount); }

/// The names of an enumeration in a configuration.
template <typename E>
using Names = std::vector<std::pair<std::string_view, E>>;

class OptionSet;

/// A key acts only where this holds for other keys.
struct Condition {
  std::string words;              ///< "data.partition = dirichlet"
  std::vector<std::string> keys;  ///< the keys that decide
  std::function<bool(const OptionSet&)> holds;
};

/// `key` has one of `values`; "": it is not set.
Condition where(const std::string& key, std::vector<std::string> values);
/// `key` has another value than `value`.
Condition unless(const std::string& key, const std::string& value);
Condition either(const Condition& first, const Condition& second);
Condition both(const Condition& first, const Condition& second);

/// All keys of a run, each declared once where it is used: name, variable, allowed values, meaning.
/// A variable's value at declaration is the default.
class OptionSet {
 public:
  struct Entry {
    std::string key;                        ///< "section.name"
    std::string help;                       ///< one sentence
    std::string allowed;                    ///< "a number above 0", "one of: a, b"
    std::vector<std::string> choices = {};  ///< the names allowed, where they are a closed list
    std::string default_text = {};
    std::function<void(const std::string&)>
        parse;  ///< throws std::invalid_argument when not allowed
    std::function<std::string()> print;
    Origin origin = {};
    std::vector<Condition> conditions = {};  ///< the key acts where all of them hold

    /// Adds one more condition.
    Entry& acts(Condition condition);
  };

  Entry& add(std::string key, std::int64_t& value, Bounds<std::int64_t> bounds, std::string help);
  Entry& add(std::string key, double& value, Bounds<double> bounds, std::string help);
  Entry& add(std::string key, bool& value, std::string help);
  /// Free text. `pattern` describes what is allowed, for messages.
  Entry& add(std::string key, std::string& value, std::string help,
             std::string allowed = "any non-empty text");
  /// A comma-separated list of integers within bounds, e.g. "500,200".
  Entry& add(std::string key, std::vector<std::int64_t>& value, Bounds<std::int64_t> bounds,
             std::string help);
  Entry& add(std::string key, std::vector<double>& value, Bounds<double> bounds, std::string help);
  /// A comma-separated subset of `choices`.
  Entry& add(std::string key, std::vector<std::string>& value, std::vector<std::string> choices,
             std::string help);
  /// A comma-separated list of words.
  Entry& add_words(std::string key, std::vector<std::string>& value, std::string help);
  /// A positive count, or "auto" which is stored as 0.
  Entry& add_or_auto(std::string key, std::int64_t& value, std::string help);
  /// A number within bounds, or "auto" which is stored as none.
  Entry& add_or_auto(std::string key, std::optional<std::int64_t>& value,
                     Bounds<std::int64_t> bounds, std::string help);
  Entry& add_or_auto(std::string key, std::optional<double>& value, Bounds<double> bounds,
                     std::string help);
  /// One name of a registry.
  Entry& add_choice(std::string key, std::string& value, std::vector<std::string> choices,
                    std::string help);
  template <typename E>
  Entry& add(std::string key, E& value, Names<E> names, std::string help);

  /// Adds a condition to a key that another part has declared, before its others.
  void acts(std::string_view key, Condition condition);
  /// True if all conditions of the key hold.
  bool acts(const Entry& entry) const;
  /// Throws ConfigError for keys that a file or the command line has set and that do not act. Where
  /// a higher level than a key's own has put it out of action it is only named in a sentence of the
  /// answer, and is then as if nobody had set it.
  std::vector<std::string> check_acting();

  /// `check` throws ConfigError for values that do not go together, see run_checks().
  void add_check(std::function<void(const OptionSet&)> check) {
    checks_.push_back(std::move(check));
  }
  /// Makes all checks, in the order they were added, once every key has its value.
  void run_checks() const {
    for (const auto& check : checks_) check(*this);
  }

  /// Gives `key` the value `text` unless a higher level has set it already; the same level again
  /// overwrites. Throws ConfigError for an unknown key (with the nearest one) or a value not
  /// allowed.
  void assign(const std::string& key, const std::string& text, const Origin& origin);

  bool contains(std::string_view key) const;
  const Entry& entry(std::string_view key) const;
  /// Level::Default when nobody set the key.
  const Origin& origin(std::string_view key) const { return entry(key).origin; }
  /// Throws ConfigError for the current value of `key`: "PLACE: key 'K' cannot be 'V' with
  /// `because`".
  [[noreturn]] void refuse(std::string_view key, const std::string& because) const;
  /// Throws that error unless the key has its default value: for keys without meaning here.
  void refuse_unless_default(std::string_view key, const std::string& because) const;
  const std::deque<Entry>& entries() const { return entries_; }

  /// Returns all keys that act as INI text, one section after the other in order of declaration.
  std::string to_ini() const;

 private:
  Entry& find(std::string_view key);
  Entry& insert(Entry entry);

  std::deque<Entry> entries_;  // what add() returns stays where it is
  std::vector<std::function<void(const OptionSet&)>> checks_;
};

/// Returns the candidate nearest to `word` by edit distance (swapped neighbours count 1), or ""
/// when none is close enough to be a likely slip.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

/// Returns the key a person most likely meant by `key`, or "" when nothing is alike. It is one
/// letter off, begun but not finished, in another section, or else the nearest.
std::string likely_key(std::string_view key, const std::vector<std::string>& keys);

/// "; did you mean 'close'?", or `otherwise` when `close` is empty.
std::string suggestion(const std::string& close, const std::string& otherwise = "");

/// "a, b, c".
std::string join(const std::vector<std::string>& words, std::string_view separator = ", ");

template <typename E>
OptionSet::Entry& OptionSet::add(std::string key, E& value, Names<E> names, std::string help) {
  std::vector<std::string> words;
  for (const auto& [name, unused] : names) words.emplace_back(name);
  Entry entry;
  entry.key = std::move(key);
  entry.help = std::move(help);
  entry.allowed = "one of: " + join(words);
  entry.choices = words;
  entry.parse = [&value, names](const std::string& text) {
    for (const auto& [name, candidate] : names) {
      if (name == text) {
        value = candidate;
        return;
      }
    }
    throw std::invalid_argument("unknown name");
  };
  entry.print = [&value, names] {
    for (const auto& [name, candidate] : names) {
      if (candidate == value) return std::string(name);
    }
    return std::string("?");
  };
  return insert(std::move(entry));
}

}  // namespace fedhpc
