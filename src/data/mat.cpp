// The layout is that of "MAT-File Format" (The MathWorks): a header of 128 bytes, then elements of
// a tag (type and size, 32 bits each; or both and up to four bytes of data in one tag) and data.

#include "data/mat.hpp"

#include <algorithm>
#include <limits>

#include "fedhpc/core/error.hpp"

#include "data/unpack.hpp"

namespace fedhpc {

namespace {

constexpr std::size_t kHeader = 128;
constexpr std::size_t kTag = 8;
constexpr std::uint32_t kInt8 = 1;
constexpr std::uint32_t kUint8 = 2;
constexpr std::uint32_t kInt32 = 5;
constexpr std::uint32_t kUint32 = 6;
constexpr std::uint32_t kMatrix = 14;
constexpr std::uint32_t kCompressed = 15;

std::uint32_t little_endian(const std::uint8_t* bytes) {
  return std::uint32_t{bytes[0]} | std::uint32_t{bytes[1]} << 8 | std::uint32_t{bytes[2]} << 16 |
         std::uint32_t{bytes[3]} << 24;
}

/// The part of an element that follows its tag.
struct Element {
  std::uint32_t type = 0;
  std::size_t offset = 0;  // of the data
  std::size_t size = 0;    // of the data, in bytes
};

/// Walks over the elements of the file or of one unpacked array.
class Walker {
 public:
  /// `where` says in messages what the offsets count from, e.g. " of the array packed at 128".
  Walker(std::span<const std::uint8_t> bytes, std::size_t offset, const std::string& path,
         std::string where)
      : bytes_(bytes), offset_(offset), path_(path), where_(std::move(where)) {}

  bool at_end() const { return offset_ >= bytes_.size(); }
  std::size_t offset() const { return offset_; }

  Element next(std::size_t alignment) {
    if (bytes_.size() - std::min(offset_, bytes_.size()) < kTag) {
      fail(bytes_.size(), "the end of the data", "the tag of an element");
    }
    const std::uint8_t* tag = bytes_.data() + offset_;
    Element element{.type = little_endian(tag), .offset = offset_ + kTag, .size = 0};
    if (element.type >> 16 != 0) {  // small: two bytes of size, two of type, four of data
      element.size = element.type >> 16;
      element.type &= 0xFFFF;
      element.offset = offset_ + 4;
      if (element.size > 4) fail(offset_, concat("a small element of ", element.size), "0 to 4");
      offset_ += kTag;
      return element;
    }
    element.size = little_endian(tag + 4);
    if (element.size > bytes_.size() - element.offset) {
      fail(bytes_.size(), "the end of the data",
           concat(element.size, " bytes of the element at offset ", offset_));
    }
    offset_ = element.offset + (element.size + alignment - 1) / alignment * alignment;
    return element;
  }

  /// The next element, which must be of this type.
  Element next_of(std::uint32_t type, const char* what) {
    const std::size_t start = offset_;
    const Element element = next(kTag);
    if (element.type != type) {
      fail(start, concat("an element of type ", element.type),
           concat("type ", type, " (", what, ")"));
    }
    return element;
  }

  std::span<const std::uint8_t> data(const Element& element) const {
    return bytes_.subspan(element.offset, element.size);
  }

  [[noreturn]] void fail(std::size_t offset, const std::string& found,
                         const std::string& expected) const {
    throw DataError(concat("MATLAB file '", path_, "', offset ", offset, where_, ": found ", found,
                           ", expected ", expected, "; fetch it again"));
  }

 private:
  std::span<const std::uint8_t> bytes_;
  std::size_t offset_;
  const std::string& path_;
  std::string where_;
};

void check_header(std::span<const std::uint8_t> bytes, const std::string& path) {
  const Walker file(bytes, 0, path, "");
  if (bytes.size() < kHeader)
    file.fail(bytes.size(), "the end of the file", "a header of 128 bytes");
  if (bytes[126] != 'I' || bytes[127] != 'M') {
    file.fail(126, concat("the bytes ", int{bytes[126]}, " ", int{bytes[127]}),
              "IM, the mark of a little-endian MATLAB file");
  }
  if (bytes[125] != 1) {
    file.fail(124, concat("version ", int{bytes[125]}), "1 (saved with -v6 or -v7, not -v7.3)");
  }
}

/// Reads flags, shape and name of an array; the walker stands at its elements afterwards.
MatArray read_head(Walker& walker) {
  MatArray array;
  walker.next_of(kUint32, "array flags");
  const std::size_t start = walker.offset();
  const Element shape = walker.next_of(kInt32, "the shape");
  std::int64_t elements = 1;
  for (std::size_t i = 0; i + 4 <= shape.size; i += 4) {
    const std::int64_t size = little_endian(walker.data(shape).data() + i);
    const std::int64_t factor = std::max<std::int64_t>(size, 1);
    if (size > std::numeric_limits<std::int32_t>::max() ||
        elements > std::numeric_limits<std::int64_t>::max() / factor) {
      walker.fail(start, concat("a dimension of ", size), "the shape of an array that exists");
    }
    elements *= factor;
    array.shape.push_back(size);
  }
  const Element name = walker.next_of(kInt8, "the name");
  const auto letters = walker.data(name);
  array.name.assign(letters.begin(), letters.end());
  return array;
}

/// The elements of the array the walker stands at.
void find_data(Walker& walker, MatArray& array) {
  const std::size_t start = walker.offset();
  const Element data = walker.next_of(kUint8, "unsigned bytes");
  if (static_cast<std::int64_t>(data.size) != array.size()) {
    walker.fail(start, concat(data.size, " elements of ", array.name),
                concat(array.size(), " as its shape says"));
  }
  array.data_offset = data.offset;
}

/// Takes in one array if its name is wanted.
void take_array(std::span<const std::uint8_t> matrix, std::vector<std::uint8_t>* owner,
                Walker walker, const std::vector<std::string>& names,
                std::vector<MatArray>& arrays) {
  MatArray array = read_head(walker);
  const auto place = std::find(names.begin(), names.end(), array.name);
  if (place == names.end()) return;
  find_data(walker, array);
  if (owner != nullptr) {
    array.bytes = std::move(*owner);
  } else {
    const auto elements = matrix.subspan(array.data_offset, static_cast<std::size_t>(array.size()));
    array.bytes.assign(elements.begin(), elements.end());
    array.data_offset = 0;
  }
  arrays[static_cast<std::size_t>(place - names.begin())] = std::move(array);
}

}  // namespace

std::int64_t MatArray::size() const {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) elements *= size;
  return elements;
}

std::vector<MatArray> parse_mat(std::span<const std::uint8_t> bytes, const std::string& path,
                                const std::vector<std::string>& names) {
  check_header(bytes, path);
  std::vector<MatArray> arrays(names.size());
  Walker file(bytes, kHeader, path, "");
  while (!file.at_end()) {
    const std::size_t start = file.offset();
    Element element = file.next(1);  // packed elements are not padded, arrays are multiples of 8
    if (element.type == kMatrix) {
      const std::size_t end = element.offset + element.size;
      take_array(bytes, nullptr, Walker(bytes.first(end), element.offset, path, ""), names, arrays);
    } else if (element.type == kCompressed) {
      std::vector<std::uint8_t> unpacked = unpack_zlib(file.data(element), element.offset, path);
      const std::span<const std::uint8_t> view(unpacked);
      Walker walker(view, 0, path, concat(" of the array packed at offset ", start));
      element = walker.next(1);
      if (element.type == kMatrix) {
        take_array(
            view, &unpacked,
            Walker(view, element.offset, path, concat(" of the array packed at offset ", start)),
            names, arrays);
      }
    }
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (arrays[i].name.empty()) {
      file.fail(bytes.size(), "the end of the file", "an array called '" + names[i] + "'");
    }
  }
  return arrays;
}

}  // namespace fedhpc
