#include "data/csv.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <string_view>

#include "fedhpc/core/error.hpp"

#include "data/numbers.hpp"

namespace fedhpc {

namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// Splits text into rows of fields.
class RowReader {
 public:
  RowReader(std::string_view text, const std::string& path) : text_(text), path_(path) {
    if (text_.starts_with(kByteOrderMark)) position_ = kByteOrderMark.size();
  }

  /// Reads the next row that is not empty; false at the end.
  bool next() {
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
      ++position_;  // the comma
      if (position_ >= text_.size()) {
        fields_.emplace_back();
        return true;
      }
    }
  }

  const std::vector<std::string_view>& fields() const { return fields_; }  ///< until next()
  std::int64_t line() const { return row_line_; }                          ///< of the row

  template <typename... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw DataError(concat("csv file '", path_, "', line ", row_line_, parts...));
  }

 private:
  bool at_line_end() const {
    const char letter = text_[position_];
    return letter == '\n' || (letter == '\r' && text_.substr(position_ + 1, 1) == "\n");
  }
  void pass_line_end() {
    position_ += text_[position_] == '\r' ? 2 : 1;
    ++line_;
  }

  std::string_view plain_field() {
    const std::size_t begin = position_;
    while (position_ < text_.size() && text_[position_] != ',' && !at_line_end()) ++position_;
    return text_.substr(begin, position_ - begin);
  }

  std::string_view quoted_field() {
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
    if (position_ < text_.size() && text_[position_] != ',' && !at_line_end()) {
      fail(", column ", fields_.size(), ": found ", quoted(text_.substr(position_, 1)),
           " behind a quoted field, expected a comma or the end of the line");
    }
    return field;
  }

  std::string_view text_;
  const std::string& path_;
  std::size_t position_ = 0;
  std::int64_t line_ = 1;
  std::int64_t row_line_ = 1;
  std::vector<std::string_view> fields_;
  std::deque<std::string> unquoted_;  // what the quoted fields of the row refer to
};

/// Appends the row's numbers to the table.
void take_row(const RowReader& reader, CsvTable& table) {
  const std::vector<std::string_view>& fields = reader.fields();
  if (fields.size() != table.columns) {
    reader.fail(": found ", fields.size(), fields.size() == 1 ? " column" : " columns",
                ", expected ", table.columns, " as in the first row");
  }
  for (std::size_t column = 0; column < fields.size(); ++column) {
    const std::optional<double> number = parse_number(fields[column]);
    if (!number || !std::isfinite(*number)) {
      reader.fail(", column ", column, ": found ", quoted(fields[column]),
                  ", expected a finite number; remove or repair the row");
    }
    table.cells.push_back(*number);
  }
  table.lines.push_back(reader.line());
}

}  // namespace

CsvTable parse_csv(std::span<const std::uint8_t> bytes, const std::string& path) {
  RowReader reader({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
  CsvTable table;
  while (reader.next()) {
    const std::vector<std::string_view>& fields = reader.fields();
    if (table.columns == 0) {
      table.columns = fields.size();
      const bool numbers = std::all_of(fields.begin(), fields.end(),
                                       [](auto field) { return parse_number(field).has_value(); });
      if (!numbers) {
        table.header.assign(fields.begin(), fields.end());
        continue;
      }
    }
    take_row(reader, table);
  }
  if (table.lines.empty()) reader.fail(": found the end of the file, expected a row of numbers");
  return table;
}

}  // namespace fedhpc
