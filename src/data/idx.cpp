#include "data/idx.hpp"

#include <algorithm>
#include <limits>

#include "fedhpc/core/error.hpp"

#include "data/byte_source.hpp"

namespace fedhpc {

namespace {

constexpr std::uint8_t kUnsignedByte = 0x08;

[[noreturn]] void fail(const std::string& path, std::size_t offset, const std::string& found,
                       const std::string& expected) {
  throw DataError(
      concat("idx file '", path, "', offset ", offset, ": found ", found, ", expected ", expected));
}

std::int64_t big_endian(const std::uint8_t* bytes) {
  return std::int64_t{bytes[0]} << 24 | std::int64_t{bytes[1]} << 16 | std::int64_t{bytes[2]} << 8 |
         std::int64_t{bytes[3]};
}

constexpr std::int64_t kLimit = std::numeric_limits<std::int64_t>::max();

/// The product of the sizes that are not 0, or the largest number when it does not fit.
std::int64_t saturated_product(const std::vector<std::int64_t>& shape) {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) {
    const std::int64_t factor = std::max<std::int64_t>(size, 1);
    product = product > kLimit / factor ? kLimit : product * factor;
  }
  return product;
}

std::string describe(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t size : shape) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text;
}

}  // namespace

IdxArray read_idx(const std::string& path, std::size_t dimensions) {
  return parse_idx(read_bytes(path), path, dimensions);
}

IdxArray parse_idx(std::vector<std::uint8_t> content, const std::string& path,
                   std::size_t dimensions) {
  IdxArray array{.path = path, .shape = {}, .bytes = std::move(content), .data_offset = 0};
  const std::vector<std::uint8_t>& bytes = array.bytes;
  array.data_offset = 4 + 4 * dimensions;
  if (bytes.size() < 4) {
    fail(path, bytes.size(), "the end of the file", "an idx header of 4 bytes");
  }
  if (bytes[0] != 0 || bytes[1] != 0) {
    fail(path, 0, concat("the bytes ", int{bytes[0]}, " ", int{bytes[1]}),
         "the two zero bytes every idx file starts with");
  }
  if (bytes[2] != kUnsignedByte) {
    fail(path, 2, concat("element type ", int{bytes[2]}), "8 (unsigned bytes)");
  }
  if (bytes[3] != dimensions) {
    fail(path, 3, concat(int{bytes[3]}, " dimensions"), concat(dimensions));
  }
  if (bytes.size() < array.data_offset) {
    fail(path, bytes.size(), "the end of the file",
         concat("a header of ", array.data_offset, " bytes"));
  }
  for (std::size_t i = 0; i < dimensions; ++i) {
    array.shape.push_back(big_endian(bytes.data() + 4 + 4 * i));
  }
  const bool empty = std::find(array.shape.begin(), array.shape.end(), 0) != array.shape.end();
  const std::int64_t product = saturated_product(array.shape);
  if (empty && product == kLimit) {
    fail(path, 4, concat("the shape ", describe(array.shape)), "a shape whose size fits 64 bits");
  }
  const std::int64_t expected = empty ? 0 : product;
  const auto found = static_cast<std::int64_t>(bytes.size() - array.data_offset);
  const std::string promised =
      concat(expected, " bytes of data (", describe(array.shape), ") as the header says");
  if (found < expected) {
    fail(path, bytes.size(), concat("the end of the file after ", found, " bytes of data"),
         promised);
  }
  if (found > expected) {
    fail(path, array.data_offset + static_cast<std::size_t>(expected),
         concat(found - expected, " trailing bytes"), promised);
  }
  return array;
}

void check_labels(const IdxArray& images, const IdxArray& labels, std::int64_t classes) {
  if (images.shape.front() != labels.shape.front()) {
    fail(labels.path, 4, concat(labels.shape.front(), " labels"),
         concat(images.shape.front(), ", one for each image of '", images.path, "'"));
  }
  for (std::int64_t s = 0; s < labels.shape.front(); ++s) {
    if (labels.data()[s] >= classes) {
      fail(labels.path, labels.data_offset + static_cast<std::size_t>(s),
           concat("label ", int{labels.data()[s]}), concat("a label from 0 to ", classes - 1));
    }
  }
}

}  // namespace fedhpc
