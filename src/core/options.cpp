#include "fedhpc/core/options.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "fedhpc/core/configuration_source.hpp"
#include "fedhpc/core/error.hpp"

#include "core/exact_numbers.hpp"
#include "core/number_text.hpp"

namespace fedhpc {

namespace {

bool allows(const OptionSet::Entry& entry, const std::string& text) {
  const std::string before = entry.print();
  try {
    entry.parse(text);
    entry.parse(before);
    return true;
  } catch (const std::logic_error&) {
    return false;
  }
}

/// The whole number that 1e3 stands for.
std::string as_whole(const std::string& text) {
  try {
    const auto number = parse_number<double>(text, between(-kLargestExact, kLargestExact));
    return number == std::trunc(number) ? print_number(static_cast<std::int64_t>(number)) : "";
  } catch (const std::logic_error&) {
    return {};
  }
}

/// The value without what some file formats take for a comment behind it.
std::string without_comment(const std::string& text) {
  const std::size_t mark = text.find_first_of(";#");
  if (mark == std::string::npos) return {};
  const std::size_t last = text.substr(0, mark).find_last_not_of(" \t");
  return last == std::string::npos ? "" : text.substr(0, last + 1);
}

/// 0.1 for 0,1.
std::string with_point(std::string text) {
  if (text.find_first_not_of("0123456789+-eE,") != std::string::npos) return {};
  std::replace(text.begin(), text.end(), ',', '.');
  return text;
}

/// The value a person most likely meant: a near name, or what a repair makes of the text.
std::string likely_value(const OptionSet::Entry& entry, const std::string& text) {
  for (const std::string& value : {without_comment(text), with_point(text), as_whole(text)}) {
    if (!value.empty() && value != text && allows(entry, value)) return value;
  }
  return nearest(text, entry.choices);
}

}  // namespace

OptionSet::Entry& OptionSet::insert(Entry entry) {
  const auto refuse = [&](const auto&... because) {
    throw ConfigError(concat("key '", entry.key, "' cannot be declared: ", because...));
  };
  if (contains(entry.key)) refuse("there is a key of this name");
  entry.default_text = entry.print();
  if (!entry.default_text.empty() && !allows(entry, entry.default_text)) {
    refuse("its default ", entry.default_text, " is not allowed; allowed: ", entry.allowed);
  }
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

void OptionSet::assign(const std::string& key, const std::string& text, const Origin& origin) {
  if (!contains(key)) {
    std::vector<std::string> keys;
    for (const Entry& entry : entries_) keys.push_back(entry.key);
    const bool base = key.ends_with(".base");
    throw ConfigError(
        concat(origin.place, ": unknown key '", key, "' (value '", text, "')",
               base ? "; base = FILE stands before the first [section]"
                    : suggestion(likely_key(key, keys), "; 'fedhpc help keys' lists all keys")));
  }
  Entry& entry = find(key);
  if (text.empty()) {
    throw ConfigError(
        concat(origin.place, ": key '", key, "' has an empty value; allowed: ", entry.allowed));
  }
  if (origin.level < entry.origin.level) return;
  const auto refuse = [&](const std::string& because) {
    return ConfigError(concat(origin.place, ": key '", key, "' cannot be '", text,
                              "'; allowed: ", entry.allowed, because));
  };
  try {
    entry.parse(text);
  } catch (const std::out_of_range&) {
    throw refuse(", in 64 bits");
  } catch (const std::invalid_argument&) {
    throw refuse(suggestion(likely_value(entry, text)));
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

}  // namespace fedhpc
