#pragma once

#include <string>
#include <utility>
#include <vector>

#include "fedhpc/core/options.hpp"
#include "fedhpc/core/registry.hpp"

namespace fedhpc {

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
