// The kinds of values that a key may have: what is allowed, how it is read and printed.

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "fedhpc/core/options.hpp"

#include "core/number_text.hpp"

namespace fedhpc {

namespace {

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

template <typename Number>
OptionSet::Entry list_entry(std::string key, std::vector<Number>& value, Bounds<Number> bounds,
                            std::string help) {
  OptionSet::Entry entry;
  entry.key = std::move(key);
  entry.help = std::move(help);
  const std::string one = describe(bounds);  // "a number ..."
  const std::string kind = std::is_floating_point_v<Number> ? "number" : "whole number";
  entry.allowed = kind + "s" + one.substr(2 + kind.size()) + ", separated by commas";
  entry.parse = [&value, bounds](const std::string& text) {
    std::vector<Number> numbers;
    const bool unset = text.empty();  // a default: nobody may set that
    for (const std::string& word : unset ? Words{} : split_list(text)) {
      numbers.push_back(parse_number(word, bounds));
    }
    value = std::move(numbers);
  };
  entry.print = [&value] {
    Words words;
    for (const Number number : value) words.push_back(print_number(number));
    return join(words, ",");
  };
  return entry;
}

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
  return insert(list_entry(std::move(key), value, bounds, std::move(help)));
}

OptionSet::Entry& OptionSet::add(std::string key, std::vector<double>& value, Bounds<double> bounds,
                                 std::string help) {
  return insert(list_entry(std::move(key), value, bounds, std::move(help)));
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

}  // namespace fedhpc
