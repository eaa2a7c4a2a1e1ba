#include <algorithm>

#include "io/hdf5_internal.hpp"

namespace fedhpc::h5 {

namespace {

Handle string_type(std::size_t length) {
  Handle type = own(H5Tcopy(H5T_C_S1), H5Tclose, "string type");
  check(H5Tset_size(type.id(), std::max<std::size_t>(length, 1)), "string type");
  check(H5Tset_strpad(type.id(), H5T_STR_NULLPAD), "string type");
  check(H5Tset_cset(type.id(), H5T_CSET_UTF8), "string type");
  return type;
}

/// An attribute, its type, and that it holds one value: HDF5 writes as many as there are.
struct OneValue {
  OneValue(const Handle& object, const std::string& name)
      : attribute(own(H5Aopen(object.id(), name.c_str(), H5P_DEFAULT), H5Aclose,
                      "no attribute '" + name + "'")),
        type(own(H5Aget_type(attribute.id()), H5Tclose, "type of '" + name + "'")) {
    const Handle space = own(H5Aget_space(attribute.id()), H5Sclose, "space of '" + name + "'");
    const hssize_t values = H5Sget_simple_extent_npoints(space.id());
    if (values != 1) {
      throw Error(concat("attribute '", name, "' has ", values, " values, expected one"));
    }
  }

  Handle attribute;
  Handle type;
};

}  // namespace

void write_attribute(const Handle& object, const std::string& name, const std::string& text,
                     std::size_t capacity) {
  const Handle type = string_type(std::max(text.size(), capacity));
  const Handle space = own(H5Screate(H5S_SCALAR), H5Sclose, "data space");
  const Handle attribute =
      own(H5Acreate2(object.id(), name.c_str(), type.id(), space.id(), H5P_DEFAULT, H5P_DEFAULT),
          H5Aclose, "cannot create attribute '" + name + "'");
  std::string padded = text;
  padded.resize(std::max<std::size_t>({text.size(), capacity, 1}), '\0');
  check(H5Awrite(attribute.id(), type.id(), padded.data()),
        "cannot write attribute '" + name + "'");
}

void write_attribute(const Handle& object, const std::string& name, std::int64_t value) {
  const Handle space = own(H5Screate(H5S_SCALAR), H5Sclose, "data space");
  const Handle attribute = own(
      H5Acreate2(object.id(), name.c_str(), H5T_NATIVE_INT64, space.id(), H5P_DEFAULT, H5P_DEFAULT),
      H5Aclose, "cannot create attribute '" + name + "'");
  check(H5Awrite(attribute.id(), H5T_NATIVE_INT64, &value),
        "cannot write attribute '" + name + "'");
}

void rewrite_attribute(const Handle& object, const std::string& name, const std::string& text) {
  const Handle attribute = own(H5Aopen(object.id(), name.c_str(), H5P_DEFAULT), H5Aclose,
                               "cannot open attribute '" + name + "'");
  const Handle type = own(H5Aget_type(attribute.id()), H5Tclose, "type of '" + name + "'");
  std::string padded = text;
  require(text.size() <= H5Tget_size(type.id()), "a rewritten attribute fits its capacity");
  padded.resize(H5Tget_size(type.id()), '\0');
  check(H5Awrite(attribute.id(), type.id(), padded.data()),
        "cannot write attribute '" + name + "'");
}

bool has_attribute(const Handle& object, const std::string& name) {
  const htri_t found = H5Aexists(object.id(), name.c_str());
  check(found, "cannot look for attribute '" + name + "'");
  return found > 0;
}

void delete_attribute(const Handle& object, const std::string& name) {
  if (has_attribute(object, name)) check(H5Adelete(object.id(), name.c_str()), name);
}

void replace_attribute(const Handle& object, const std::string& name, const std::string& text,
                       std::size_t capacity) {
  delete_attribute(object, name);
  write_attribute(object, name, text, capacity);
}

void replace_attribute(const Handle& object, const std::string& name, std::int64_t value) {
  delete_attribute(object, name);
  write_attribute(object, name, value);
}

std::int64_t read_integer_attribute(const Handle& object, const std::string& name) {
  const OneValue one(object, name);
  if (H5Tget_class(one.type.id()) != H5T_INTEGER) {
    throw Error(concat("attribute '", name, "' is not a whole number"));
  }
  std::int64_t value = 0;
  check(H5Aread(one.attribute.id(), H5T_NATIVE_INT64, &value),
        "cannot read attribute '" + name + "'");
  return value;
}

std::string read_text_attribute(const Handle& object, const std::string& name) {
  const OneValue one(object, name);
  if (H5Tget_class(one.type.id()) != H5T_STRING || H5Tis_variable_str(one.type.id()) > 0) {
    throw Error(concat("attribute '", name, "' is not a fixed-length text"));
  }
  std::string text(H5Tget_size(one.type.id()), '\0');
  check(H5Aread(one.attribute.id(), one.type.id(), text.data()),
        "cannot read attribute '" + name + "'");
  return text.substr(0, text.find('\0'));
}

void write_texts(const Handle& location, const std::string& path,
                 const std::vector<std::string>& texts) {
  std::size_t width = 1;
  for (const std::string& text : texts) width = std::max(width, text.size());
  std::string packed;
  for (std::string text : texts) {
    text.resize(width, '\0');
    packed += text;
  }
  const Handle type = string_type(width);
  const Handle dataset = create_dataset(location, path, type.id(), {texts.size()});
  if (!texts.empty()) write_all(dataset, type.id(), packed.data());
}

namespace {

/// Texts of any length each, as h5py writes a list of them.
std::vector<std::string> read_variable_texts(const Handle& dataset, const Handle& type,
                                             hsize_t count) {
  std::vector<char*> pointers(count, nullptr);
  read_all(dataset, type.id(), pointers.data());
  std::vector<std::string> texts;
  for (const char* text : pointers) texts.emplace_back(text == nullptr ? "" : text);
  const Handle space = own(H5Dget_space(dataset.id()), H5Sclose, "data space");
  H5Dvlen_reclaim(type.id(), space.id(), H5P_DEFAULT, pointers.data());
  return texts;
}

}  // namespace

std::vector<std::string> read_texts(const Handle& location, const std::string& path) {
  const Handle dataset = open_dataset(location, path);
  const Handle type = own(H5Dget_type(dataset.id()), H5Tclose, "data type");
  const std::vector<hsize_t> shape = shape_of(dataset);
  if (H5Tget_class(type.id()) != H5T_STRING || shape.size() != 1 || shape.front() == 0) {
    throw Error(concat("data set '", path, "' does not hold a list of texts"));
  }
  if (H5Tis_variable_str(type.id()) > 0) return read_variable_texts(dataset, type, shape.front());
  const std::size_t width = H5Tget_size(type.id());
  std::string packed(width * shape.front(), '\0');
  read_all(dataset, type.id(), packed.data());
  std::vector<std::string> texts;
  for (hsize_t i = 0; i < shape.front(); ++i) {
    const std::string text = packed.substr(i * width, width);
    texts.push_back(text.substr(0, text.find('\0')));
  }
  return texts;
}

}  // namespace fedhpc::h5
