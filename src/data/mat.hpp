#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fedhpc {

/// A numeric array of a MATLAB file: unsigned bytes as they are stored, column-major.
struct MatArray {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> bytes;  // the array was unpacked from these
  std::size_t data_offset = 0;      ///< of the elements within `bytes`

  std::int64_t size() const;  ///< number of elements, the product of the shape
  const std::uint8_t* data() const { return bytes.data() + data_offset; }
};

/// Reads the arrays called `names`, in that order, and passes over others. The MATLAB file is of
/// version 5 (6 and 7 are the same format; little-endian; elements plain or packed with zlib).
/// Elements must be stored as unsigned bytes, which MATLAB does for any class whose values allow
/// it. Throws DataError naming file and offset, what stands there and what was expected.
std::vector<MatArray> parse_mat(std::span<const std::uint8_t> bytes, const std::string& path,
                                const std::vector<std::string>& names);

}  // namespace fedhpc
