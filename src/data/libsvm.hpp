#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fedhpc {

/// Samples in the libsvm format, as sparse as they came.
struct LibsvmTable {
  std::vector<double> labels;            // [S]
  std::vector<std::int64_t> offsets{0};  // [S + 1]
  std::vector<std::int32_t> columns;     // [offsets[S]], from 0, ascending within a sample
  std::vector<double> values;            // [offsets[S]]
  std::int64_t width = 0;                ///< features: the largest index

  std::int64_t rows() const { return static_cast<std::int64_t>(labels.size()); }
};

/// Parses lines "label index:value ..." whose indices ascend from 1; what follows a # is a comment,
/// empty lines are skipped. Throws DataError naming file and line, what stands there and what was
/// expected.
LibsvmTable parse_libsvm(std::span<const std::uint8_t> bytes, const std::string& path);

}  // namespace fedhpc
