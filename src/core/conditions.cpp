// When keys act, and the refusal of those that do not.

#include <algorithm>
#include <map>

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

namespace {

/// The first condition of a key that does not hold; null if all do.
const Condition* unmet_of(const OptionSet& options, const OptionSet::Entry& entry) {
  const auto unmet = std::ranges::find_if(
      entry.conditions, [&](const Condition& one) { return !one.holds(options); });
  return unmet == entry.conditions.end() ? nullptr : &*unmet;
}

}  // namespace

OptionSet::Entry& OptionSet::Entry::acts(Condition condition) {
  conditions.push_back(std::move(condition));
  return *this;
}

void OptionSet::acts(std::string_view key, Condition condition) {
  if (!contains(key)) {
    throw ConfigError(concat("a condition is given to '", key, "', which is no key"));
  }
  std::vector<Condition>& conditions = find(key).conditions;
  conditions.insert(conditions.begin(), std::move(condition));
}

bool OptionSet::acts(const Entry& entry) const { return unmet_of(*this, entry) == nullptr; }

namespace {

/// A key without effect that the next sentence is about: one that no other such key decides about,
/// as long as there is one.
const OptionSet::Entry* next_idle(const OptionSet& options) {
  const auto idle = [&](const OptionSet::Entry& one) {
    return is_given(one.origin.level) && !options.acts(one);
  };
  const OptionSet::Entry* any = nullptr;
  for (const OptionSet::Entry& one : options.entries()) {
    if (!idle(one)) continue;
    any = &one;
    const std::vector<std::string>& keys = unmet_of(options, one)->keys;
    if (std::ranges::none_of(keys, [&](const auto& key) { return idle(options.entry(key)); }))
      break;
  }
  return any;
}

}  // namespace

std::vector<std::string> OptionSet::check_acting() {
  std::vector<std::string> notes;
  std::vector<std::string> refused;
  std::string problem;
  std::map<std::string, Level> left_out;  // keys, by the level that has put them out of action
  while (const Entry* next = next_idle(*this)) {
    Entry* idle = &find(next->key);
    const Condition& unmet = *unmet_of(*this, *idle);
    std::vector<std::string> values;
    Level highest = Level::Default;
    for (const std::string& key : unmet.keys) {
      const std::string value = entry(key).print();
      values.push_back(value.empty() ? key + " not set" : key + " = " + value);
      highest = std::max(highest, origin(key).level);
      if (left_out.contains(key)) highest = std::max(highest, left_out.at(key));
    }
    const std::string what = concat(idle->origin.place, ": key '", idle->key, "' = '",
                                    idle->print(), "' has no effect with ", join(values, " and "));
    if (highest > idle->origin.level) {
      notes.push_back(what + "; it is left out");
      left_out[idle->key] = highest;
    } else {
      refused.push_back(idle->key);
      if (refused.size() == 1) {
        problem = concat(what, "; it needs ", unmet.words, ": set that, or drop the key");
      }
    }
    idle->parse(idle->default_text);
    idle->origin = {};
  }
  if (!refused.empty()) {
    refused.erase(refused.begin());
    throw ConfigError(refused.empty() ? problem
                                      : concat(problem, ". Without effect too: ", join(refused)));
  }
  return notes;
}

}  // namespace fedhpc
