#include "fedhpc/core/options.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstring>
#include <sstream>
#include <stdexcept>

#include "fedhpc/core/configuration_source.hpp"
#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

template <typename T>
std::string print_number(T value) {
  char buffer[64];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);  // shortest exact form
  return {buffer, result.ptr};
}

template <typename T>
T parse_number(const std::string& text, const Bounds<T>& bounds) {
  T value{};
  if (text.starts_with("+-")) throw std::invalid_argument("two signs");
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw std::invalid_argument("not a number");
  }
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) throw std::invalid_argument("not finite");
  }
  const bool too_low = bounds.low_open ? value <= bounds.low : value < bounds.low;
  const bool too_high = bounds.high_open ? value >= bounds.high : value > bounds.high;
  if (too_low || too_high) throw std::invalid_argument("out of range");
  return value;
}

template <typename T>
std::string describe(const Bounds<T>& bounds) {
  std::string text = std::is_floating_point_v<T> ? "a number" : "a whole number";
  const bool has_low = bounds.low != std::numeric_limits<T>::lowest();
  const bool has_high = bounds.high != std::numeric_limits<T>::max();
  if (has_low) text += (bounds.low_open ? " above " : " of at least ") + print_number(bounds.low);
  if (has_low && has_high) text += " and";
  if (has_high) text += (bounds.high_open ? " below " : " of at most ") + print_number(bounds.high);
  return text;
}

using Words = std::vector<std::string>;

Words split_list(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');) {
    const auto first = word.find_first_not_of(" \t");
    if (first == std::string::npos) throw std::invalid_argument("empty element");
    words.push_back(word.substr(first, word.find_last_not_of(" \t") - first + 1));
  }
  if (words.empty() || text.ends_with(',')) throw std::invalid_argument("empty element");
  return words;
}

template <typename Number>
OptionSet::Entry number_entry(std::string key, Number& value, Bounds<Number> bounds,
                              std::string help) {
  OptionSet::Entry entry;
  entry.key = std::move(key);
  entry.help = std::move(help);
  entry.allowed = describe(bounds);
  entry.parse = [&value, bounds](const std::string& text) { value = parse_number(text, bounds); };
  entry.print = [&value] { return print_number(value); };
  return entry;
}

/// The value a person most likely meant: a near name, or the whole number that 1e3 stands for.
std::string likely_value(const OptionSet::Entry& entry, const std::string& text) {
  if (!entry.choices.empty()) return nearest(text, entry.choices);
  constexpr double kExact = 9007199254740992;  // 2^53: up to here a double is the number written
  try {
    const auto number = parse_number<double>(text, between(-kExact, kExact));
    if (number != std::trunc(number)) return {};
    std::string whole = print_number(static_cast<std::int64_t>(number));
    const std::string before = entry.print();
    entry.parse(whole);  // or it is not allowed either
    entry.parse(before);
    return whole;
  } catch (const std::invalid_argument&) {
    return {};
  }
}

/// What other programs call a key, and its name here.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"learning_rate", "lr"},    {"epochs", "local_epochs"}, {"num_epochs", "local_epochs"},
    {"num_clients", "clients"}, {"num_rounds", "rounds"},
};

}  // namespace

OptionSet::Entry& OptionSet::add(std::string key, std::int64_t& value, Bounds<std::int64_t> bounds,
                                 std::string help) {
  return insert(number_entry(std::move(key), value, bounds, std::move(help)));
}

OptionSet::Entry& OptionSet::add(std::string key, double& value, Bounds<double> bounds,
                                 std::string help) {
  return insert(number_entry(std::move(key), value, bounds, std::move(help)));
}

OptionSet::Entry& OptionSet::add(std::string key, bool& value, std::string help) {
  return add(std::move(key), value, Names<bool>{{"true", true}, {"false", false}}, std::move(help));
}

OptionSet::Entry& OptionSet::add(std::string key, std::string& value, std::string help,
                                 std::string allowed) {
  return insert({.key = std::move(key),
                 .help = std::move(help),
                 .allowed = std::move(allowed),
                 .parse = [&value](const std::string& text) { value = text; },
                 .print = [&value] { return value; }});
}

OptionSet::Entry& OptionSet::add(std::string key, std::vector<std::int64_t>& value,
                                 Bounds<std::int64_t> bounds, std::string help) {
  return insert({.key = std::move(key),
                 .help = std::move(help),
                 .allowed = "whole numbers" +
                            describe(bounds).substr(std::strlen("a whole number")) +
                            ", separated by commas",
                 .parse =
                     [&value, bounds](const std::string& text) {
                       std::vector<std::int64_t> numbers;
                       const bool unset = text.empty();  // a default: nobody may set that
                       for (const std::string& word : unset ? Words{} : split_list(text)) {
                         numbers.push_back(parse_number(word, bounds));
                       }
                       value = std::move(numbers);
                     },
                 .print =
                     [&value] {
                       std::vector<std::string> words;
                       for (const std::int64_t number : value)
                         words.push_back(print_number(number));
                       return join(words, ",");
                     }});
}

OptionSet::Entry& OptionSet::add(std::string key, std::vector<std::string>& value,
                                 std::vector<std::string> choices, std::string help) {
  const std::string allowed = "any of: " + join(choices) + " (separated by commas)";
  return insert({.key = std::move(key),
                 .help = std::move(help),
                 .allowed = allowed,
                 .parse =
                     [&value, choices](const std::string& text) {
                       std::vector<std::string> words = split_list(text);
                       for (const std::string& word : words) {
                         if (std::find(choices.begin(), choices.end(), word) == choices.end()) {
                           throw std::invalid_argument("unknown name");
                         }
                       }
                       value = std::move(words);
                     },
                 .print = [&value] { return join(value, ","); }});
}

OptionSet::Entry& OptionSet::add_words(std::string key, std::vector<std::string>& value,
                                       std::string help) {
  return insert({.key = std::move(key),
                 .help = std::move(help),
                 .allowed = "words separated by commas",
                 .parse = [&value](const std::string& text) { value = split_list(text); },
                 .print = [&value] { return join(value, ","); }});
}

OptionSet::Entry& OptionSet::add_or_auto(std::string key, std::int64_t& value, std::string help) {
  const Bounds<std::int64_t> bounds = count_from(1);
  return insert(
      {.key = std::move(key),
       .help = std::move(help),
       .allowed = "auto or " + describe(bounds),
       .parse =
           [&value, bounds](const std::string& text) {
             value = text == "auto" ? 0 : parse_number(text, bounds);
           },
       .print = [&value] { return value == 0 ? std::string("auto") : print_number(value); }});
}

namespace {

template <typename T>
OptionSet::Entry number_or_auto(std::string key, std::optional<T>& value, Bounds<T> bounds,
                                std::string help) {
  return {.key = std::move(key),
          .help = std::move(help),
          .allowed = "auto or " + describe(bounds),
          .parse =
              [&value, bounds](const std::string& text) {
                if (text == "auto") {
                  value.reset();
                } else {
                  value = parse_number(text, bounds);
                }
              },
          .print = [&value] { return value ? print_number(*value) : std::string("auto"); }};
}

}  // namespace

OptionSet::Entry& OptionSet::add_or_auto(std::string key, std::optional<std::int64_t>& value,
                                         Bounds<std::int64_t> bounds, std::string help) {
  return insert(number_or_auto(std::move(key), value, bounds, std::move(help)));
}

OptionSet::Entry& OptionSet::add_or_auto(std::string key, std::optional<double>& value,
                                         Bounds<double> bounds, std::string help) {
  return insert(number_or_auto(std::move(key), value, bounds, std::move(help)));
}

OptionSet::Entry& OptionSet::add_choice(std::string key, std::string& value,
                                        std::vector<std::string> choices, std::string help) {
  const std::string allowed = "one of: " + join(choices);
  return insert({.key = std::move(key),
                 .help = std::move(help),
                 .allowed = allowed,
                 .choices = choices,
                 .parse =
                     [&value, choices](const std::string& text) {
                       if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
                         throw std::invalid_argument("unknown name");
                       }
                       value = text;
                     },
                 .print = [&value] { return value; }});
}

OptionSet::Entry& OptionSet::insert(Entry entry) {
  require(!contains(entry.key), "an option is declared once");
  entry.default_text = entry.print();
  return entries_.emplace_back(std::move(entry));
}

bool OptionSet::contains(std::string_view key) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const Entry& entry) { return entry.key == key; });
}

OptionSet::Entry& OptionSet::find(std::string_view key) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.key == key; });
  require(found != entries_.end(), "the option is declared");
  return *found;
}

const OptionSet::Entry& OptionSet::entry(std::string_view key) const {
  return const_cast<OptionSet*>(this)->find(key);
}

void OptionSet::set_origin(std::string_view key, Origin origin) {
  find(key).origin = std::move(origin);
}

void OptionSet::assign(const std::string& key, const std::string& text, const Origin& origin) {
  if (!contains(key)) {
    std::vector<std::string> keys;
    for (const Entry& entry : entries_) keys.push_back(entry.key);
    throw ConfigError(
        concat(origin.place, ": unknown key '", key, "' (value '", text, "')",
               suggestion(likely_key(key, keys), "; 'fedhpc help keys' lists all keys")));
  }
  Entry& entry = find(key);
  if (text.empty()) {
    throw ConfigError(
        concat(origin.place, ": key '", key, "' has an empty value; allowed: ", entry.allowed));
  }
  if (origin.level < entry.origin.level) return;
  try {
    entry.parse(text);
  } catch (const std::invalid_argument&) {
    throw ConfigError(concat(origin.place, ": key '", key, "' cannot be '", text,
                             "'; allowed: ", entry.allowed, suggestion(likely_value(entry, text))));
  }
  entry.origin = origin;
}

void OptionSet::refuse(std::string_view key, const std::string& because) const {
  const Entry& of_key = entry(key);
  throw ConfigError(concat(of_key.origin.place, ": key '", key, "' cannot be '", of_key.print(),
                           "' with ", because));
}

void OptionSet::refuse_unless_default(std::string_view key, const std::string& because) const {
  const Entry& of_key = entry(key);
  if (of_key.print() != of_key.default_text) refuse(key, because);
}

std::string OptionSet::to_ini() const {
  std::vector<std::string> sections;
  for (const Entry& entry : entries_) {
    if (!acts(entry)) continue;
    const std::string section = entry.key.substr(0, entry.key.find('.'));
    if (std::find(sections.begin(), sections.end(), section) == sections.end()) {
      sections.push_back(section);
    }
  }
  std::string text;
  for (const std::string& section : sections) {
    text += (text.empty() ? "[" : "\n[") + section + "]\n";
    for (const Entry& entry : entries_) {
      if (!entry.key.starts_with(section + ".") || !acts(entry)) continue;
      const std::string value = entry.print();
      // An unset text has no value to write: an empty one would be refused when read back.
      if (value.empty()) continue;
      text += entry.key.substr(section.size() + 1) + " = " + ini_value(value) + "\n";
    }
  }
  return text;
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  const auto same = [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  };
  const auto distance = [&](std::string_view a, std::string_view b) {
    std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
    for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
    for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
      for (std::size_t j = 1; j <= b.size(); ++j) {
        d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1,
                            d[i - 1][j - 1] + (same(a[i - 1], b[j - 1]) ? 0U : 1U)});
        if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1])) {
          d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
        }
      }
    }
    return d[a.size()][b.size()];
  };
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t d = distance(word, candidate);
    if (d < best_distance) {
      best = candidate;
      best_distance = d;
    }
  }
  return best;
}

std::string likely_key(std::string_view key, const std::vector<std::string>& keys) {
  const auto name_of = [](std::string_view whole) { return whole.substr(whole.find('.') + 1); };
  for (const auto& [other, name] : kOtherNames) {
    if (name_of(key) != other) continue;
    for (const std::string& candidate : keys) {
      if (name_of(candidate) == name) return candidate;
    }
  }
  const std::string close = nearest(key, keys);
  if (close.starts_with(key) || (!close.empty() && name_of(close) == name_of(key))) return close;
  std::string begun;
  std::string elsewhere;
  for (const std::string& candidate : keys) {
    if (begun.empty() && !key.empty() && candidate.starts_with(key)) begun = candidate;
    if (elsewhere.empty() && name_of(candidate) == name_of(key)) elsewhere = candidate;
  }
  if (!elsewhere.empty()) return elsewhere;
  return begun.empty() ? close : begun;
}

std::string suggestion(const std::string& close, const std::string& otherwise) {
  return close.empty() ? otherwise : "; did you mean '" + close + "'?";
}

std::string join(const std::vector<std::string>& words, std::string_view separator) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += separator;
    text += word;
  }
  return text;
}

}  // namespace fedhpc
