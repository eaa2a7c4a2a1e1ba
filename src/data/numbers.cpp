#include "data/numbers.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

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
  if (end != text.data() + text.size()) return std::nullopt;
  // Too small or too large for a double: 0 or infinite.
  if (error == std::errc::result_out_of_range)
    return std::strtod(std::string(text).c_str(), nullptr);
  if (error != std::errc()) return std::nullopt;
  return number;
}

std::string text_of(double number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

bool may_merge(double number) { return std::abs(number) >= kLargestExact; }

bool is_utf8(std::string_view text) {
  constexpr std::array<unsigned, 4> kLeast = {0, 0x80, 0x800, 0x10000};  // by further bytes
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  for (std::size_t at = 0; at < text.size(); ++at) {
    const unsigned first = byte(at);
    if (first < 0x80) continue;
    const std::size_t more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
    if (first < 0xc0 || first > 0xf7 || text.size() - at <= more) return false;
    unsigned letter = first & (0x3fU >> more);
    for (std::size_t next = 0; next < more; ++next) {
      if ((byte(++at) & 0xc0U) != 0x80) return false;
      letter = letter << 6 | (byte(at) & 0x3fU);
    }
    const bool half_of_a_pair = letter >= 0xd800 && letter <= 0xdfff;
    if (letter < kLeast[more] || letter > 0x10ffff || half_of_a_pair) return false;
  }
  return true;
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 40;
  std::string shown(text.substr(0, kLongest));
  const bool readable = is_utf8(text);
  while (readable && !is_utf8(shown)) shown.pop_back();  // no part of a letter
  for (char& letter : shown) {
    const auto byte = static_cast<unsigned char>(letter);
    if (byte < ' ' || byte == 0x7f || (byte > 0x7f && !readable)) letter = '?';
  }
  return "'" + shown + (text.size() > kLongest ? "...'" : "'");
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

}  // namespace fedhpc
