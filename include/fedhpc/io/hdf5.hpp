#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// The calls of HDF5 1.10 and what they give, in newer versions too.
#ifndef H5_USE_110_API
#define H5_USE_110_API
#endif
#include <hdf5.h>

#include "fedhpc/core/error.hpp"
#include "fedhpc/io/seal.hpp"

/// HDF5 handles with one owner each, and the few calls the project needs. Private to code that
/// reads or writes files. Every failure becomes an Error that names the file or object. Not
/// thread-safe.
namespace fedhpc::h5 {

/// Owns one HDF5 identifier. A move leaves H5I_INVALID_HID; the destructor never throws.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Handle() = default;
  Handle(hid_t id, Close close) : id_(id), close_(close) {}
  ~Handle() { reset(); }
  Handle(Handle&& other) noexcept
      : id_(std::exchange(other.id_, H5I_INVALID_HID)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      reset();
      id_ = std::exchange(other.id_, H5I_INVALID_HID);
      close_ = other.close_;
    }
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  hid_t id() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }
  /// Closes it. Below 0 where that fails: a file system may take back bytes that late.
  herr_t reset() noexcept;

 private:
  hid_t id_ = H5I_INVALID_HID;
  Close close_ = nullptr;
};

/// A type of numbers in memory and in files.
using Type = hid_t;

/// The HDF5 type of a C++ number in memory and in files (native byte order).
template <typename T>
Type type_of();

/// The pages of a file that is made with CreateLive; pages of memory are as large or a multiple of it.
constexpr hsize_t kPage = 4096;  // bytes

/// CreateLive makes a file that a kill of its writer leaves readable: what HDF5 rewrites in place
/// crosses no page, as a kill may end a write between two. CreatePortable makes one in the oldest
/// format: readable after every flush, but not open to readers meanwhile. All others use the newest.
enum class Mode { Read, ReadSwmr, ReadWrite, Create, CreateLive, CreatePortable };

/// Opens or creates (overwriting) a file. Throws Error naming the path and HDF5's own reason in one
/// line. A new file begins with `user_block` bytes that are not HDF5's; 0 or a power of 2 from 512.
Handle open_file(const std::string& path, Mode mode, std::size_t user_block = 0);

/// Opens a file made elsewhere to read it: also one that a run still writes, or was writing when it
/// was killed. Throws Error saying what the path is instead, or where it is damaged.
Handle open_input(const std::string& path);

/// Opens a file that nobody writes any more. Unlike open_input, it refuses a file cut off anywhere,
/// and compares all bytes of a sealed one (seal.hpp) with its seal.
Handle open_whole(const std::string& path, const Tick& tick = {});

/// Throws Error saying what a path is instead of an HDF5 file that can be read.
void check_input(const std::string& path);

/// Whether a file is one of HDF5's; none where it cannot be read.
std::optional<bool> is_hdf5(const std::string& path);
std::string library_version();  ///< e.g. "1.10.8"

std::int64_t bytes_of(const Handle& file);  ///< the size of an open file
/// True unless somebody wrote the file, or had until being killed, when open_input opened it.
bool was_closed(const Handle& file);

bool exists(const Handle& location, const std::string& path);
Handle create_group(const Handle& location, const std::string& path);  ///< parents are made too
Handle open_group(const Handle& location, const std::string& path);

/// Creates a contiguous data set of fixed size.
Handle create_dataset(const Handle& location, const std::string& path, Type type,
                      const std::vector<hsize_t>& shape);
/// Creates a data set of shape [0, tail...], extendible in its first dimension.
Handle create_extendible(const Handle& location, const std::string& path, Type type,
                         const std::vector<hsize_t>& tail, hsize_t chunk_rows, int deflate = 0);
Handle open_dataset(const Handle& location, const std::string& path);
std::vector<hsize_t> shape_of(const Handle& dataset);
/// Whether a data set has exactly this type in the file.
bool holds(const Handle& dataset, Type type);
bool holds_bytes(const Handle& dataset);  ///< true: its numbers are unsigned bytes
bool holds_numbers(const Handle& dataset);
bool holds_floats(const Handle& dataset);
/// Throws Error unless a data set holds numbers and the machine has the memory for all of them,
/// with `bytes_each`.
void check_numbers(const Handle& dataset, std::size_t bytes_each);
/// Throws Error where parts of a data set were never written: HDF5 reads zeros there.
void check_written(const Handle& dataset);
/// True if rows may be appended.
bool extendible(const Handle& dataset);

void write_all(const Handle& dataset, Type type, const void* values);
/// Writes rows [first, first + count) of a data set whose other dimensions are written whole.
void write_rows(const Handle& dataset, Type type, hsize_t first, hsize_t count, const void* values);
void read_all(const Handle& dataset, Type type, void* values);
/// Reads rows [first, first + count) of a data set whose other dimensions are read whole.
void read_rows(const Handle& dataset, Type type, hsize_t first, hsize_t count, void* values);
/// Appends one row (one entry for a 1-D data set).
void append(const Handle& dataset, Type type, const void* values);
void flush(const Handle& dataset);
void flush_file(const Handle& file);
/// Writes a file to disk. Throws Error where a byte does not get there.
void sync_file(const Handle& file);
/// Writes a file to disk and closes it. Throws Error where either fails.
void close_file(Handle file);
/// Releases the lock that keeps readers away from a file being written; there may be none.
void release_lock(const Handle& file);

/// Writes a fixed-length string; `capacity` (0: the text's own length) leaves room to rewrite it.
void write_attribute(const Handle& object, const std::string& name, const std::string& text,
                     std::size_t capacity = 0);
void write_attribute(const Handle& object, const std::string& name, std::int64_t value);
/// Replaces the text of an attribute in place (allowed while SWMR is on); it must fit its capacity.
void rewrite_attribute(const Handle& object, const std::string& name, const std::string& text);
/// Removes an attribute; nothing where there is none.
void delete_attribute(const Handle& object, const std::string& name);
/// Gives an attribute another value, whatever length or type it had; not while SWMR is on.
void replace_attribute(const Handle& object, const std::string& name, const std::string& text,
                       std::size_t capacity = 0);
void replace_attribute(const Handle& object, const std::string& name, std::int64_t value);
bool has_attribute(const Handle& object, const std::string& name);
std::string read_text_attribute(const Handle& object, const std::string& name);
std::int64_t read_integer_attribute(const Handle& object, const std::string& name);

template <typename T>
void write_vector(const Handle& location, const std::string& path, const std::vector<T>& values) {
  const Handle dataset = create_dataset(location, path, type_of<T>(), {values.size()});
  if (!values.empty()) write_all(dataset, type_of<T>(), values.data());
}

/// Reads a 1-D data set, converting its numbers to T.
template <typename T>
std::vector<T> read_vector(const Handle& location, const std::string& path) {
  const Handle dataset = open_dataset(location, path);
  const std::vector<hsize_t> shape = shape_of(dataset);
  if (shape.size() != 1) throw Error(concat("data set '", path, "' is not one-dimensional"));
  try {
    check_numbers(dataset, sizeof(T));
  } catch (const Error& error) {
    throw Error(concat("data set '", path, "': ", error.what()));
  }
  std::vector<T> values(shape.front());
  if (!values.empty()) read_all(dataset, type_of<T>(), values.data());
  return values;
}

/// Writes a data set of fixed-length strings.
void write_texts(const Handle& location, const std::string& path,
                 const std::vector<std::string>& texts);

/// Reads a data set of fixed-length strings; throws Error for an empty one.
std::vector<std::string> read_texts(const Handle& location, const std::string& path);

/// Lists the names directly below a group, in order of creation.
std::vector<std::string> names_in(const Handle& location, const std::string& path);

/// Copies groups, data sets and attributes of the root of `from` into that of `to`, a few megabytes
/// at a time. Absolute paths in `except` are left out. Data sets keep type, shape, chunks and
/// filters and take the format of `to`. `from` may be a file that is being written.
void copy_contents(const Handle& from, const Handle& to, const std::vector<std::string>& except);

}  // namespace fedhpc::h5
