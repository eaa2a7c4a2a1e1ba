// When keys act, and the refusal of those that do not.

#include <algorithm>

#include "fedhpc/core/error.hpp"
#include "fedhpc/core/options.hpp"

namespace fedhpc {

Condition where(const std::string& key, std::vector<std::string> values) {
  std::string words = key + (values.front().empty() ? " not set" : " = " + values.front());
  for (std::size_t i = 1; i < values.size(); ++i) {
    words += (i + 1 == values.size() ? " or " : ", ") + values[i];
  }
  return {
      .words = std::move(words), .keys = {key}, .holds = [key, values](const OptionSet& options) {
        const std::string value = options.entry(key).print();
        return std::find(values.begin(), values.end(), value) != values.end();
      }};
}

Condition unless(const std::string& key, const std::string& value) {
  return {.words = value.empty() ? key + " set" : key + " other than " + value,
          .keys = {key},
          .holds = [key, value](const OptionSet& options) {
            return options.entry(key).print() != value;
          }};
}

namespace {

std::vector<std::string> united(std::vector<std::string> keys,
                                const std::vector<std::string>& more) {
  for (const std::string& key : more) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  }
  return keys;
}

}  // namespace

Condition either(const Condition& first, const Condition& second) {
  return {.words = first.words + ", or " + second.words,
          .keys = united(first.keys, second.keys),
          .holds = [one = first.holds, other = second.holds](const OptionSet& options) {
            return one(options) || other(options);
          }};
}

Condition both(const Condition& first, const Condition& second) {
  return {.words = first.words + " and " + second.words,
          .keys = united(first.keys, second.keys),
          .holds = [one = first.holds, other = second.holds](const OptionSet& options) {
            return one(options) && other(options);
          }};
}

OptionSet::Entry& OptionSet::Entry::acts(Condition condition) {
  conditions.push_back(std::move(condition));
  return *this;
}

void OptionSet::acts(std::string_view key, Condition condition) {
  std::vector<Condition>& conditions = find(key).conditions;
  conditions.insert(conditions.begin(), std::move(condition));
}

bool OptionSet::acts(const Entry& entry) const {
  return std::all_of(entry.conditions.begin(), entry.conditions.end(),
                     [&](const Condition& condition) { return condition.holds(*this); });
}

std::vector<std::string> OptionSet::check_acting() {
  std::vector<std::string> notes;
  std::vector<std::string> refused;
  std::string problem;
  for (const Entry& entry : entries_) {
    if (!is_given(entry.origin.level) || acts(entry)) continue;
    const auto unmet =
        std::find_if(entry.conditions.begin(), entry.conditions.end(),
                     [&](const Condition& condition) { return !condition.holds(*this); });
    std::vector<std::string> values;
    Level highest = Level::Default;
    for (const std::string& key : unmet->keys) {
      const std::string value = this->entry(key).print();
      values.push_back(value.empty() ? key + " not set" : key + " = " + value);
      highest = std::max(highest, origin(key).level);
    }
    const std::string what = concat(entry.origin.place, ": key '", entry.key, "' = '",
                                    entry.print(), "' has no effect with ", join(values, " and "));
    if (highest > entry.origin.level) {
      notes.push_back(what + "; it is left out");
      continue;
    }
    refused.push_back(entry.key);
    if (refused.size() == 1) {
      problem = concat(what, "; it needs ", unmet->words, ": set that, or drop the key");
    }
  }
  if (!refused.empty()) {
    refused.erase(refused.begin());
    throw ConfigError(refused.empty() ? problem
                                      : concat(problem, ". Without effect too: ", join(refused)));
  }
  for (Entry& entry : entries_) {
    if (!is_given(entry.origin.level) || acts(entry)) continue;
    entry.parse(entry.default_text);
    entry.origin = {};
  }
  return notes;
}

}  // namespace fedhpc
