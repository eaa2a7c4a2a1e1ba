#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fedhpc {

/// Returns the number in a text, spaces around it and a leading plus sign allowed; nothing for any
/// other text. "nan" and "inf" are numbers here.
std::optional<double> parse_number(std::string_view text);

/// Returns the shortest text that reads back as this number.
std::string text_of(double number);

/// Whether a label or an id that was read as this number may have been another one: 2^53 + 1 reads
/// as 2^53.
bool may_merge(double number);

/// Whether a text is UTF-8, as names in result files are.
bool is_utf8(std::string_view text);

/// Quotes a text from a file, short enough for a message, UTF-8 and free of control characters.
std::string in_quotes(std::string_view text);

/// Returns the different values of two files in ascending order.
template <typename Value>
std::vector<Value> distinct(const std::vector<Value>& train, const std::vector<Value>& test) {
  std::vector<Value> all = train;
  all.insert(all.end(), test.begin(), test.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

/// Returns the place of each value of two files `among` the different ones: 0..K-1.
template <typename Value>
std::vector<std::int64_t> places(const std::vector<Value>& train, const std::vector<Value>& test,
                                 const std::vector<Value>& among) {
  std::vector<std::int64_t> found;
  found.reserve(train.size() + test.size());
  for (const auto* values : {&train, &test}) {
    for (const Value& one : *values) {
      found.push_back(std::lower_bound(among.begin(), among.end(), one) - among.begin());
    }
  }
  return found;
}

/// Throws DataError naming the file unless there are at least two different labels.
void check_distinct(const std::vector<std::string>& names, const std::string& path);

/// Throws DataError naming the file where a label may have been another one.
void check_exact(const std::vector<double>& labels, const std::string& path);

/// Throws DataError naming the file where most of 20 numbers or more, places among the different
/// ones, are there once: they look like those of a regression.
void check_classes(const std::vector<std::int64_t>& places, std::int64_t different,
                   const std::string& path);

}  // namespace fedhpc
