// What is asked of a data set that somebody else wrote before its values are read.

#include <fstream>
#include <limits>

#include "io/hdf5_internal.hpp"

namespace fedhpc::h5 {

namespace {

/// Memory that the machine can still give [bytes]; the largest number where it does not say.
std::uint64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;) {
    std::uint64_t kilobytes = 0;
    if (word == "MemAvailable:" && file >> kilobytes) return kilobytes * 1024;
  }
  return std::numeric_limits<std::uint64_t>::max();
}

/// How many chunks cover a shape.
hsize_t chunks_needed(const Handle& properties, const std::vector<hsize_t>& shape) {
  std::vector<hsize_t> chunk(shape.size());
  check(H5Pget_chunk(properties.id(), static_cast<int>(chunk.size()), chunk.data()), "chunks");
  hsize_t needed = 1;
  for (std::size_t d = 0; d < shape.size(); ++d) needed *= (shape[d] - 1) / chunk[d] + 1;
  return needed;
}

}  // namespace

void check_numbers(const Handle& dataset, std::size_t bytes_each) {
  if (!holds_numbers(dataset)) {
    const Handle type = own(H5Dget_type(dataset.id()), H5Tclose, "data type");
    throw Error(concat("it does not hold numbers", H5Tget_class(type.id()) == H5T_ENUM
                                                       ? "; write booleans as whole numbers (uint8)"
                                                       : ""));
  }
  std::uint64_t bytes = bytes_each;
  bool countable = true;
  bool empty = false;
  for (const hsize_t size : shape_of(dataset)) {
    empty = empty || size == 0;
    countable = !__builtin_mul_overflow(bytes, size, &bytes) && countable;
  }
  if (empty) return;
  const std::uint64_t available = available_memory();
  if (countable && bytes <= available) return;
  throw Error(concat("its numbers take ", countable ? concat(bytes) : "more than 2^64",
                     " bytes of memory, and ", available, " are available"));
}

void check_written(const Handle& dataset) {
  const std::vector<hsize_t> shape = shape_of(dataset);
  for (const hsize_t size : shape) {
    if (size == 0) return;
  }
  const Handle properties = own(H5Dget_create_plist(dataset.id()), H5Pclose, "data set properties");
  const H5D_layout_t layout = H5Pget_layout(properties.id());
  if (layout == H5D_VIRTUAL) throw Error("its numbers lie in other files; copy them into this one");
  if (layout == H5D_CONTIGUOUS && H5Dget_storage_size(dataset.id()) == 0) {
    throw Error("none of its numbers were written");
  }
  if (layout != H5D_CHUNKED) return;
  const Handle space = own(H5Dget_space(dataset.id()), H5Sclose, "data space");
  hsize_t written = 0;
  check(H5Dget_num_chunks(dataset.id(), space.id(), &written), "chunks");
  const hsize_t needed = chunks_needed(properties, shape);
  if (written >= needed) return;
  throw Error(concat("only ", written, " of its ", needed, " chunks were written"));
}

}  // namespace fedhpc::h5
