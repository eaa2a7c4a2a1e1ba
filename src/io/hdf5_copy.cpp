#include <algorithm>

#include "io/hdf5_internal.hpp"

namespace fedhpc::h5 {

namespace {

constexpr std::size_t kBlockBytes = std::size_t{4} << 20;
// HDF5 describes every chunk of a call by about 7 kB of selections, however small the chunk is.
constexpr hsize_t kBlockChunks = 64;

/// How many rows of a data set are copied at a time.
hsize_t rows_of_block(const Handle& properties, std::size_t rank, hsize_t row_bytes) {
  const hsize_t rows = std::max<hsize_t>(1, kBlockBytes / row_bytes);
  if (H5Pget_layout(properties.id()) != H5D_CHUNKED) return rows;
  std::vector<hsize_t> chunk(rank);
  check(H5Pget_chunk(properties.id(), static_cast<int>(rank), chunk.data()), "size of chunks");
  return std::min(rows, kBlockChunks * chunk.front());
}

void copy_attributes(const Handle& from, const Handle& to, const std::string& path) {
  each_attribute(from, path, [&](const Handle& attribute, const char* name) {
    const std::string what = concat("cannot copy attribute '", name, "' of '", path, "'");
    const Handle type = own(H5Aget_type(attribute.id()), H5Tclose, what);
    const Handle space = own(H5Aget_space(attribute.id()), H5Sclose, what);
    std::string value(H5Aget_storage_size(attribute.id()), '\0');
    check(H5Aread(attribute.id(), type.id(), value.data()), what);
    const Handle made = own(
        H5Acreate2(to.id(), name, type.id(), space.id(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose, what);
    check(H5Awrite(made.id(), type.id(), value.data()), what);
  });
}

void copy_dataset(const Handle& from, const Handle& to, const std::string& path) {
  const Handle source = open_dataset(from, path);
  const Handle type = own(H5Dget_type(source.id()), H5Tclose, path);
  const Handle space = own(H5Dget_space(source.id()), H5Sclose, path);
  const Handle properties = own(H5Dget_create_plist(source.id()), H5Pclose, path);
  const Handle target = own(H5Dcreate2(to.id(), path.c_str(), type.id(), space.id(), H5P_DEFAULT,
                                       properties.id(), H5P_DEFAULT),
                            H5Dclose, path);
  copy_attributes(source, target, path);
  // What was never written stays so: read, it would be zeros that nobody has computed.
  H5D_space_status_t written = H5D_SPACE_STATUS_ERROR;
  check(H5Dget_space_status(source.id(), &written), concat("cannot read data set '", path, "'"));
  if (written == H5D_SPACE_STATUS_NOT_ALLOCATED) return;
  const std::vector<hsize_t> shape = shape_of(source);
  hsize_t row_bytes = H5Tget_size(type.id());
  for (std::size_t d = 1; d < shape.size(); ++d) row_bytes *= shape[d];
  if (row_bytes == 0) return;
  std::vector<char> block;
  if (shape.empty()) {  // a single value
    block.resize(row_bytes);
    read_all(source, type.id(), block.data());
    write_all(target, type.id(), block.data());
    return;
  }
  const hsize_t rows_per_block = rows_of_block(properties, shape.size(), row_bytes);
  for (hsize_t first = 0; first < shape.front(); first += rows_per_block) {
    const hsize_t count = std::min(rows_per_block, shape.front() - first);
    block.resize(count * row_bytes);
    read_rows(source, type.id(), first, count, block.data());
    write_rows(target, type.id(), first, count, block.data());
  }
}

void copy_group(const Handle& from, const Handle& to, const std::string& group,
                const std::vector<std::string>& except) {
  for (const std::string& name : names_in(from, group)) {
    const std::string path = (group == "/" ? "" : group) + "/" + name;
    if (std::find(except.begin(), except.end(), path) != except.end()) continue;
    H5O_info_t info;
    check(H5Oget_info_by_name2(from.id(), path.c_str(), &info, H5O_INFO_BASIC, H5P_DEFAULT),
          "cannot copy '" + path + "'");
    if (info.type == H5O_TYPE_GROUP) {
      const Handle made = create_group(to, path);
      copy_attributes(open_group(from, path), made, path);
      copy_group(from, to, path, except);
    } else {
      copy_dataset(from, to, path);
    }
  }
}

}  // namespace

void copy_contents(const Handle& from, const Handle& to, const std::vector<std::string>& except) {
  copy_attributes(from, to, "/");
  copy_group(from, to, "/", except);
}

}  // namespace fedhpc::h5
