#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

/// Splits separated text into rows of fields.
class CsvRows {
 public:
  CsvRows(std::string_view text, const std::string& path, char separator);

  /// Reads the next row that is not empty; false at the end.
  bool next();

  const std::vector<std::string_view>& fields() const { return fields_; }  ///< until next()
  std::int64_t line() const { return row_line_; }                          ///< of the row

  template <typename... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw DataError(concat("csv file '", path_, "', line ", row_line_, parts...));
  }

 private:
  bool at_line_end() const;
  void pass_line_end();
  std::string_view plain_field();
  std::string_view quoted_field();

  std::string_view text_;
  const std::string& path_;
  char separator_;
  std::size_t position_ = 0;
  std::int64_t line_ = 1;
  std::int64_t row_line_ = 1;
  std::vector<std::string_view> fields_;
  std::deque<std::string> unquoted_;  // memory of the row's quoted fields
};

/// Returns the separator that the first row of a text suggests: see parse_csv.
char detected_separator(std::string_view text);

std::string separator_name(char separator);  ///< "a comma"

}  // namespace fedhpc
