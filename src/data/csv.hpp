#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fedhpc/data/options.hpp"

namespace fedhpc {

/// The layout of a CSV file.
struct CsvFormat {
  Separator separator = Separator::Auto;
  Header header = Header::Auto;
  std::string label_column = {};   ///< "last", a name, a number from 0; empty: there is none
  std::string client_column = {};  ///< the same
  bool classes = false;            ///< the labels are classes, also where they are numbers
};

/// A column that holds numbers or words: the label or the client of each row.
struct CsvColumn {
  std::optional<std::size_t> place;  // in the file; none where there is no such column
  std::vector<double> numbers;       // [rows], or empty where it holds words
  std::vector<std::string> words;    // [rows], or empty where it holds numbers
};

/// The content of a CSV file.
struct CsvTable {
  std::string path;
  std::vector<std::string> header;  // [columns], or empty where the file has none
  std::size_t columns = 0;          // label and client among them
  std::size_t features = 0;         // the other columns
  std::vector<double> cells;        // [rows, features], all finite
  CsvColumn labels;
  CsvColumn clients;
  std::vector<std::int64_t> lines;  // [rows] where each row starts, counted from 1

  std::int64_t rows() const { return static_cast<std::int64_t>(lines.size()); }
};

/// Parses separated text (RFC 4180: fields may be in double quotes; lines end in LF or CR LF; empty
/// lines are skipped). Unless the format names a separator, the first row decides: a semicolon if
/// it has one, a tab if it has one and no comma, else a comma. The first row is a header if its
/// features have more words than the row has numbers, or if it alone has a word as label. The
/// columns are those of `like` where it is given.
///
/// Throws DataError naming file, line and column (from 0), what stands there and what was expected.
/// So it does for a client or a class from 2^53 on, and for a first column that counts the rows and
/// has no name. It does where the first row may be a header or none: it is 0, 1, 2 and so on, its
/// class is in no other row, a feature among its numbers is a word, or only this file has names.
/// Throws ConfigError for a column that does not exist.
CsvTable parse_csv(std::span<const std::uint8_t> bytes, const std::string& path,
                   const CsvFormat& format = {}, const CsvTable* like = nullptr);

}  // namespace fedhpc
