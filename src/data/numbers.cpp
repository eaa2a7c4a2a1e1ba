#include "data/numbers.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "fedhpc/core/error.hpp"

#include "core/exact_numbers.hpp"

namespace fedhpc {

std::optional<double> parse_number(std::string_view text) {
  constexpr std::string_view kSpaces = " \t";
  const std::size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return std::nullopt;
  text = text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
  if (text.starts_with("+-")) return std::nullopt;
  if (text.front() == '+') text.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string text_of(double number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

bool may_merge(double number) { return std::abs(number) >= kLargestExact; }

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 40;
  std::string shown(text.substr(0, kLongest));
  for (char& letter : shown) {
    if (static_cast<unsigned char>(letter) < ' ' || letter == '\x7f') letter = '?';
  }
  return "'" + shown + (text.size() > kLongest ? "...'" : "'");
}

std::vector<double> distinct_labels(const std::vector<double>& train,
                                    const std::vector<double>& test) {
  std::vector<double> all = train;
  all.insert(all.end(), test.begin(), test.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

void check_distinct(const std::vector<std::string>& names, const std::string& path) {
  if (names.size() >= 2) return;
  throw DataError(concat("data file '", path, "': found the label ", names.front(),
                         " only, expected at least two different labels"));
}

void check_exact(const std::vector<double>& labels, const std::string& path) {
  const auto found = std::find_if(labels.begin(), labels.end(), may_merge);
  if (found == labels.end()) return;
  throw DataError(concat("data file '", path, "': found the label ", text_of(*found),
                         ", expected classes below 2^53, from which on labels merge; number the "
                         "classes from 0, or set data.label_kind = number for a regression"));
}

void check_classes(const std::vector<std::int64_t>& places, std::int64_t different,
                   const std::string& path) {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(different));
  for (const std::int64_t place : places) ++samples[static_cast<std::size_t>(place)];
  const auto alone = std::count(samples.begin(), samples.end(), 1);
  if (places.size() < 20 || 2 * alone <= std::ssize(places)) return;
  throw DataError(concat("data file '", path, "': ", alone, " of ", places.size(),
                         " samples have a label that no other one has; set data.label_kind = "
                         "number for a regression, or class"));
}

std::vector<std::int64_t> class_numbers(const std::vector<double>& labels,
                                        const std::vector<double>& distinct) {
  std::vector<std::int64_t> classes;
  classes.reserve(labels.size());
  for (const double label : labels) {
    classes.push_back(std::lower_bound(distinct.begin(), distinct.end(), label) - distinct.begin());
  }
  return classes;
}

}  // namespace fedhpc
