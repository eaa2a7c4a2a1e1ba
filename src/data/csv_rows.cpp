#include "data/csv_rows.hpp"

#include <algorithm>

#include "data/numbers.hpp"

namespace fedhpc {

namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

std::string_view without_mark(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return text;
}

}  // namespace

CsvRows::CsvRows(std::string_view text, const std::string& path, char separator)
    : text_(without_mark(text)), path_(path), separator_(separator) {}

bool CsvRows::next() {
  fields_.clear();
  unquoted_.clear();
  while (position_ < text_.size() && at_line_end()) pass_line_end();
  if (position_ >= text_.size()) return false;
  row_line_ = line_;
  while (true) {
    fields_.push_back(text_[position_] == '"' ? quoted_field() : plain_field());
    if (position_ >= text_.size()) return true;
    if (at_line_end()) {
      pass_line_end();
      return true;
    }
    ++position_;  // the separator
    if (position_ >= text_.size()) {
      fields_.emplace_back();
      return true;
    }
  }
}

bool CsvRows::at_line_end() const {
  const char letter = text_[position_];
  return letter == '\n' || (letter == '\r' && text_.substr(position_ + 1, 1) == "\n");
}

void CsvRows::pass_line_end() {
  position_ += text_[position_] == '\r' ? 2 : 1;
  ++line_;
}

std::string_view CsvRows::plain_field() {
  const std::size_t begin = position_;
  while (position_ < text_.size() && text_[position_] != separator_ && !at_line_end()) ++position_;
  return text_.substr(begin, position_ - begin);
}

std::string_view CsvRows::quoted_field() {
  std::string& field = unquoted_.emplace_back();
  while (true) {
    const std::size_t begin = position_ + 1;
    const std::size_t quote = text_.find('"', begin);
    if (quote == std::string_view::npos) {
      fail(", column ", fields_.size(), ": found a double quote that nothing closes");
    }
    const std::string_view part = text_.substr(begin, quote - begin);
    line_ += std::count(part.begin(), part.end(), '\n');
    field += part;
    position_ = quote + 1;
    if (text_.substr(position_, 1) != "\"") break;
    field += '"';  // a doubled quote stands for one
  }
  if (position_ < text_.size() && text_[position_] != separator_ && !at_line_end()) {
    fail(", column ", fields_.size(), ": found ", in_quotes(text_.substr(position_, 1)),
         " behind a quoted field, expected ", separator_name(separator_),
         " or the end of the line");
  }
  return field;
}

char detected_separator(std::string_view text) {
  bool inside = false;  // double quotes
  bool row = false;     // whether it has begun
  bool comma = false;
  bool tab = false;
  for (const char letter : without_mark(text)) {
    if (letter == '"') inside = !inside;
    if (letter == '\n' && row && !inside) break;
    row = row || (letter != '\n' && letter != '\r');
    if (inside) continue;
    if (letter == ';') return ';';
    comma = comma || letter == ',';
    tab = tab || letter == '\t';
  }
  return tab && !comma ? '\t' : ',';
}

std::string separator_name(char separator) {
  return separator == ';' ? "a semicolon" : separator == '\t' ? "a tab" : "a comma";
}

}  // namespace fedhpc
