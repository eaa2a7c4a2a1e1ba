#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "fedhpc/core/error.hpp"
#include "fedhpc/core/options.hpp"

namespace fedhpc {

/// All things of one kind that a configuration chooses by name: methods, models, data sets, ...
/// `Make` is the signature of what makes one. The entries stand in a table NAME.def of the room, a line each, which
/// the room's sources expand: a new thing is a function or a class, and its line.
template <typename Make>
class Registry {
 public:
  struct Entry {
    std::string name;
    std::string sentence;  ///< what it is
    std::function<Make> make;
    bool added = false;  ///< by a plug-in or by Python, and not by the table
  };

  explicit Registry(std::vector<Entry> entries) : entries_(std::move(entries)) {}

  /// Adds what is not in the table; what was added before under this name is replaced. Throws
  /// ConfigError for a name of the table.
  void add(std::string name, std::string sentence, std::function<Make> make) {
    for (Entry& entry : entries_) {
      if (entry.name != name) continue;
      if (!entry.added) {
        throw ConfigError(concat("'", name, "' is fedhpc's own already; take another name"));
      }
      entry = {std::move(name), std::move(sentence), std::move(make), true};
      return;
    }
    entries_.push_back({std::move(name), std::move(sentence), std::move(make), true});
  }

  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  std::size_t size() const { return entries_.size(); }

  /// In order of the table, as all that follows.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const Entry& entry : entries_) names.push_back(entry.name);
    return names;
  }
  /// Name and sentence of each.
  std::vector<std::pair<std::string, std::string>> listing() const {
    std::vector<std::pair<std::string, std::string>> listing;
    for (const Entry& entry : entries_) listing.emplace_back(entry.name, entry.sentence);
    return listing;
  }
  /// What makes `name`, the value of `key`. Throws ConfigError with the names there are and the
  /// nearest one; `place` says where it was given, if anybody knows.
  const std::function<Make>& find(const std::string& name, const std::string& key,
                                  const std::string& place = {}) const {
    for (const Entry& entry : entries_) {
      if (entry.name == name) return entry.make;
    }
    throw ConfigError(concat(place, place.empty() ? "" : ": ", "key '", key, "' cannot be '", name,
                             "'; allowed: one of: ", join(names()),
                             suggestion(nearest(name, names()))));
  }

 private:
  std::vector<Entry> entries_;
};

}  // namespace fedhpc
