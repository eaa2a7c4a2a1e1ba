#pragma once

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
    Make* make;
  };

  explicit Registry(std::vector<Entry> entries) : entries_(std::move(entries)) {}

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
  Make& find(const std::string& name, const std::string& key, const std::string& place = {}) const {
    for (const Entry& entry : entries_) {
      if (entry.name == name) return *entry.make;
    }
    throw ConfigError(concat(place, place.empty() ? "" : ": ", "key '", key, "' cannot be '", name,
                             "'; allowed: one of: ", join(names()),
                             suggestion(nearest(name, names()))));
  }

 private:
  std::vector<Entry> entries_;
};

}  // namespace fedhpc
