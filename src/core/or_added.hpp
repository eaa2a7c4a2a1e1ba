#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "fedhpc/core/options.hpp"
#include "fedhpc/core/registry.hpp"

namespace fedhpc {

/// Whether `name` is in a registry by a plug-in or by Python, and not by fedhpc's own table.
template <typename Make>
bool is_added(const Registry<Make>& registry, const std::string& name) {
  return std::ranges::any_of(registry,
                             [&](const auto& entry) { return entry.name == name && entry.added; });
}

/// `key` has one of `names`, or a name that a plug-in or Python has added to the registry: what is
/// added may read the keys that some of fedhpc's own alone have.
template <typename Make>
Condition where_or_added(const Registry<Make>& registry, const std::string& key,
                         std::vector<std::string> names) {
  for (const auto& entry : registry) {
    if (entry.added) names.push_back(entry.name);
  }
  return where(key, std::move(names));
}

}  // namespace fedhpc
