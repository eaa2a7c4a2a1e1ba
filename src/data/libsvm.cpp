#include "data/libsvm.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>

#include "fedhpc/core/error.hpp"

#include "data/numbers.hpp"

namespace fedhpc {

namespace {

constexpr std::string_view kSpaces = " \t\r";

/// Cuts the next word off the front of `line`; empty at the end.
std::string_view next_word(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(kSpaces), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(kSpaces));
  line.remove_prefix(word.size());
  return word;
}

class Parser {
 public:
  explicit Parser(const std::string& path) : path_(path) {}

  void take_line(std::string_view line) {
    ++line_;
    line = line.substr(0, line.find('#'));
    const std::string_view label = next_word(line);
    if (label.empty()) return;
    table.labels.push_back(finite(label, "a label that is a finite number"));
    std::int64_t last = 0;
    while (true) {
      const std::string_view word = next_word(line);
      if (word.empty()) break;
      last = take_pair(word, last);
    }
    table.width = std::max(table.width, last);
    table.offsets.push_back(static_cast<std::int64_t>(table.values.size()));
  }

  [[noreturn]] void fail(const std::string& found, const std::string& expected) const {
    throw DataError(concat("libsvm file '", path_, "', line ", line_, ": found ", found,
                           ", expected ", expected));
  }

  LibsvmTable table;

 private:
  double finite(std::string_view text, const char* expected) const {
    const std::optional<double> number = parse_number(text);
    if (!number || !std::isfinite(*number)) fail(in_quotes(text), expected);
    return *number;
  }

  /// Takes "index:value" in and returns the index, which is above `last`.
  std::int64_t take_pair(std::string_view word, std::int64_t last) {
    const std::size_t colon = word.find(':');
    std::int64_t index = 0;
    const char* end = word.data() + std::min(colon, word.size());
    const auto [stop, error] = std::from_chars(word.data(), end, index);
    if (colon == std::string_view::npos || error != std::errc() || stop != end || index < 1 ||
        index > std::numeric_limits<std::int32_t>::max()) {
      fail(in_quotes(word), "index:value with an index from 1 to 2147483647");
    }
    if (index <= last) {
      fail(concat("index ", index, " after ", last), "ascending indices");
    }
    table.columns.push_back(static_cast<std::int32_t>(index - 1));
    table.values.push_back(finite(word.substr(colon + 1), "a value that is a finite number"));
    return index;
  }

  const std::string& path_;
  std::int64_t line_ = 0;
};

}  // namespace

LibsvmTable parse_libsvm(std::span<const std::uint8_t> bytes, const std::string& path) {
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  Parser parser(path);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    parser.take_line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (parser.table.labels.empty()) parser.fail("the end of the file", "a line 'label index:value'");
  return std::move(parser.table);
}

}  // namespace fedhpc
