#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fedhpc {

/// The numbers of a CSV file.
struct CsvTable {
  std::vector<std::string> header;  // [columns], or empty when the first row holds numbers only
  std::size_t columns = 0;
  std::vector<double> cells;        // [rows, columns], all finite
  std::vector<std::int64_t> lines;  // [rows] where each row starts, counted from 1

  std::int64_t rows() const { return static_cast<std::int64_t>(lines.size()); }
};

/// Parses comma-separated text (RFC 4180: fields may be in double quotes; lines end in LF or CR
/// LF; empty lines are skipped). The first row is a header if and only if one of its fields is not
/// a number. Throws DataError naming file, line and column (from 0), what stands there and what
/// was expected.
CsvTable parse_csv(std::span<const std::uint8_t> bytes, const std::string& path);

}  // namespace fedhpc
