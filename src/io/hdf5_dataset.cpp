// Data sets: making them, what they hold, their rows.

#include <algorithm>

#include "fedhpc/io/hdf5.hpp"

#include "io/hdf5_internal.hpp"

namespace fedhpc::h5 {

namespace {

std::string name_of(const Handle& object) {
  const ssize_t length = H5Iget_name(object.id(), nullptr, 0);
  if (length <= 0) return "?";
  std::string name(static_cast<std::size_t>(length) + 1, '\0');
  H5Iget_name(object.id(), name.data(), name.size());
  name.pop_back();
  return name;
}

/// Throws Error with `what`, the data set's name and the reason unless `status` is success.
void check(herr_t status, const std::string& what, const Handle& dataset) {
  if (status >= 0) return;
  const std::string reason = last_reason();  // the question for the name clears it
  throw Error(concat("HDF5: ", what, " '", name_of(dataset), "': ", reason));
}

Handle create(const Handle& location, const std::string& path, Type type, const Handle& space,
              const Handle& properties) {
  const Handle links = link_properties();
  return own(H5Dcreate2(location.id(), path.c_str(), type, space.id(), links.id(), properties.id(),
                        H5P_DEFAULT),
             H5Dclose, "cannot create data set '" + path + "'");
}

/// Some rows of a data set in the file, and as much room in memory.
struct Selection {
  Handle file;
  Handle memory;

  Selection(const Handle& dataset, hsize_t first, hsize_t count)
      : file(own(H5Dget_space(dataset.id()), H5Sclose, "data space")) {
    std::vector<hsize_t> size = shape_of(dataset);
    std::vector<hsize_t> start(size.size(), 0);
    start.front() = first;
    size.front() = count;
    check(
        H5Sselect_hyperslab(file.id(), H5S_SELECT_SET, start.data(), nullptr, size.data(), nullptr),
        "rows of", dataset);
    memory = own(H5Screate_simple(static_cast<int>(size.size()), size.data(), nullptr), H5Sclose,
                 "data space");
  }
};

}  // namespace

template <>
Type type_of<float>() {
  return H5T_NATIVE_FLOAT;
}
template <>
Type type_of<double>() {
  return H5T_NATIVE_DOUBLE;
}
template <>
Type type_of<std::uint8_t>() {
  return H5T_NATIVE_UINT8;
}
template <>
Type type_of<std::int32_t>() {
  return H5T_NATIVE_INT32;
}
template <>
Type type_of<std::int64_t>() {
  return H5T_NATIVE_INT64;
}

Handle create_dataset(const Handle& location, const std::string& path, Type type,
                      const std::vector<hsize_t>& shape) {
  const Handle space = own(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr),
                           H5Sclose, "data space of '" + path + "'");
  const Handle properties = own(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "data set properties");
  return create(location, path, type, space, properties);
}

Handle create_extendible(const Handle& location, const std::string& path, Type type,
                         const std::vector<hsize_t>& tail, hsize_t chunk_rows, int deflate) {
  std::vector<hsize_t> now{0};
  std::vector<hsize_t> limit{H5S_UNLIMITED};
  std::vector<hsize_t> chunk{chunk_rows};
  for (const hsize_t size : tail) {
    now.push_back(size);
    limit.push_back(size);
    chunk.push_back(std::max<hsize_t>(size, 1));
  }
  const Handle space = own(H5Screate_simple(static_cast<int>(now.size()), now.data(), limit.data()),
                           H5Sclose, "data space of '" + path + "'");
  const Handle properties = own(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "data set properties");
  check(H5Pset_chunk(properties.id(), static_cast<int>(chunk.size()), chunk.data()), path);
  if (deflate > 0) check(H5Pset_deflate(properties.id(), static_cast<unsigned>(deflate)), path);
  return create(location, path, type, space, properties);
}

Handle open_dataset(const Handle& location, const std::string& path) {
  return own(H5Dopen2(location.id(), path.c_str(), H5P_DEFAULT), H5Dclose,
             "cannot open data set '" + path + "'");
}

std::vector<hsize_t> shape_of(const Handle& dataset) {
  const Handle space = own(H5Dget_space(dataset.id()), H5Sclose, "data space");
  const int rank = H5Sget_simple_extent_ndims(space.id());
  std::vector<hsize_t> shape(static_cast<std::size_t>(std::max(rank, 0)));
  H5Sget_simple_extent_dims(space.id(), shape.data(), nullptr);
  return shape;
}

bool holds(const Handle& dataset, Type type) {
  const Handle held = own(H5Dget_type(dataset.id()), H5Tclose, "data type");
  return H5Tequal(held.id(), type) > 0;
}

bool holds_bytes(const Handle& dataset) {
  const Handle type = own(H5Dget_type(dataset.id()), H5Tclose, "data type");
  return H5Tget_class(type.id()) == H5T_INTEGER && H5Tget_size(type.id()) == 1 &&
         H5Tget_sign(type.id()) == H5T_SGN_NONE;
}

bool holds_numbers(const Handle& dataset) {
  const Handle type = own(H5Dget_type(dataset.id()), H5Tclose, "data type");
  const H5T_class_t kind = H5Tget_class(type.id());
  return kind == H5T_INTEGER || kind == H5T_FLOAT;
}

bool holds_floats(const Handle& dataset) {
  const Handle type = own(H5Dget_type(dataset.id()), H5Tclose, "data type");
  return H5Tget_class(type.id()) == H5T_FLOAT;
}

bool extendible(const Handle& dataset) {
  const Handle properties = own(H5Dget_create_plist(dataset.id()), H5Pclose, "data set properties");
  const Handle space = own(H5Dget_space(dataset.id()), H5Sclose, "data space");
  const int rank = H5Sget_simple_extent_ndims(space.id());
  if (rank < 1 || H5Pget_layout(properties.id()) != H5D_CHUNKED) return false;
  std::vector<hsize_t> most(static_cast<std::size_t>(rank));
  H5Sget_simple_extent_dims(space.id(), nullptr, most.data());
  return most.front() == H5S_UNLIMITED;
}

void write_all(const Handle& dataset, Type type, const void* values) {
  check(H5Dwrite(dataset.id(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values),
        "cannot write data set", dataset);
}

void write_rows(const Handle& dataset, Type type, hsize_t first, hsize_t count,
                const void* values) {
  if (count == 0) return;
  const Selection rows(dataset, first, count);
  check(H5Dwrite(dataset.id(), type, rows.memory.id(), rows.file.id(), H5P_DEFAULT, values),
        "cannot write data set", dataset);
}

void read_all(const Handle& dataset, Type type, void* values) {
  check(H5Dread(dataset.id(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), "cannot read data set",
        dataset);
}

void read_rows(const Handle& dataset, Type type, hsize_t first, hsize_t count, void* values) {
  if (count == 0) return;
  const Selection rows(dataset, first, count);
  check(H5Dread(dataset.id(), type, rows.memory.id(), rows.file.id(), H5P_DEFAULT, values),
        "cannot read data set", dataset);
}

void append(const Handle& dataset, Type type, const void* values) {
  std::vector<hsize_t> shape = shape_of(dataset);
  const hsize_t last = shape.front()++;
  check(H5Dset_extent(dataset.id(), shape.data()), "cannot extend", dataset);
  write_rows(dataset, type, last, 1, values);
}

void flush(const Handle& dataset) { check(H5Dflush(dataset.id()), "cannot flush", dataset); }

}  // namespace fedhpc::h5
