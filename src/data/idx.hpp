#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fedhpc {

/// An array of unsigned bytes in the idx format (yann.lecun.com/exdb/mnist). A file has two zero
/// bytes, the element type, the number of dimensions, each dimension as a big-endian 32-bit number,
/// and the elements.
struct IdxArray {
  std::string path;
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> bytes;  // the whole file, header first
  std::size_t data_offset = 0;

  const std::uint8_t* data() const { return bytes.data() + data_offset; }
};

/// Takes the content of an idx file of `dimensions` dimensions apart. Throws DataError naming the
/// file, the offset, what stands there and what was expected.
IdxArray parse_idx(std::vector<std::uint8_t> content, const std::string& path,
                   std::size_t dimensions);

/// Reads a plain, .gz or .xz idx file of `dimensions` dimensions. Throws DataError naming the file,
/// the offset, what stands there and what was expected.
IdxArray read_idx(const std::string& path, std::size_t dimensions);

/// Checks that labels (1-D) and images (3-D) are equally many and every label is below `classes`.
void check_labels(const IdxArray& images, const IdxArray& labels, std::int64_t classes);

}  // namespace fedhpc
