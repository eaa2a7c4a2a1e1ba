#include <algorithm>
#include <functional>

#include <ATen/ops/empty.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/engine/model_record.hpp"
#include "fedhpc/io/hdf5.hpp"

namespace fedhpc {

std::vector<NamedTensor> parameters_of(const Rows& row) {
  const Tensor values = on_host(row.values);
  std::vector<NamedTensor> parameters;
  for (const Field& field : row.layout->fields()) {
    parameters.push_back(
        {field.name, values.narrow(1, field.offset, field.size).reshape(field.shape)});
  }
  return parameters;
}

std::vector<std::pair<std::string, std::vector<NamedTensor>>> ModelRecord::parts() const {
  std::vector<std::pair<std::string, std::vector<NamedTensor>>> parts;
  if (global.values.defined()) parts.emplace_back("global", parameters_of(global));
  if (!factors.values.defined()) return parts;
  std::vector<NamedTensor> own = parameters_of(factors);
  std::erase_if(own, [&](const NamedTensor& one) { return global.layout->contains(one.name); });
  parts.emplace_back("factors", std::move(own));
  return parts;
}

std::int64_t ModelRecord::bytes() const {
  std::int64_t bytes = 0;
  for (const auto& [group, parameters] : parts()) {
    for (const NamedTensor& one : parameters)
      bytes += static_cast<std::int64_t>(one.values.nbytes());
  }
  return bytes;
}

namespace {

/// Reads a parameter whose shape the model gives into its place in a row. What the file says of the
/// shape is compared first: it may be one that no memory holds.
void read_field(const h5::Handle& file, const std::string& source, const std::string& group,
                const std::string& kind, const Field& field, const Tensor& row) {
  const h5::Handle dataset = h5::open_dataset(file, group + "/" + field.name);
  std::vector<std::int64_t> shape;
  for (const hsize_t size : h5::shape_of(dataset)) shape.push_back(static_cast<std::int64_t>(size));
  if (shape != field.shape) {
    throw DataError(concat(source, ": ", kind, " '", field.name, "' has shape ",
                           at::IntArrayRef(shape), ", the model needs ",
                           at::IntArrayRef(field.shape)));
  }
  try {
    h5::check_written(dataset);  // a run that has not ended has a place for its model, no model
  } catch (const Error& error) {
    throw DataError(concat(source, ": ", kind, " '", field.name, "': ", error.what(),
                           "; give the file of a run that has ended"));
  }
  Tensor values = at::empty({1, field.size}, at::kDouble);
  if (field.size > 0) h5::read_all(dataset, h5::type_of<double>(), values.data_ptr());
  row.narrow(1, field.offset, field.size).copy_(values);
}

/// Opens a file of weights, `source`, and hands it to `read`; HDF5's complaints become DataErrors.
void with_init_file(const std::string& source, const std::string& path,
                    const std::function<void(const h5::Handle&)>& read) {
  try {
    read(h5::open_input(path));
  } catch (const DataError&) {
    throw;
  } catch (const Error& error) {
    throw DataError(
        concat(source, " cannot be read: ", error.what(), "; give a result file RUN.h5"));
  }
}

/// The group of a result file's first model, where it is wanted and there, else of its last.
std::string group_of(const h5::Handle& file, const std::string& name, InitState state) {
  const std::string first = "/model/init/" + name;
  return state == InitState::Initial && h5::exists(file, first) ? first : "/model/" + name;
}

}  // namespace

bool holds_weights(const std::string& path) {
  bool held = false;
  with_init_file(concat("model.file '", path, "'"), path, [&](const h5::Handle& file) {
    held = h5::exists(file, "/model/init/global") || h5::exists(file, "/model/global");
  });
  return held;
}

Rows read_initial_model(const std::string& key, const std::string& path, const LayoutPtr& layout,
                        at::ScalarType type, InitState state) {
  const std::string source = concat(key, " '", path, "'");
  Tensor row = at::empty({1, layout->size()}, at::kDouble);
  with_init_file(source, path, [&](const h5::Handle& file) {
    const std::string group = group_of(file, "global", state);
    if (!h5::exists(file, group)) {
      throw DataError(concat(source, state == InitState::Initial
                                         ? " holds neither /model/init/global nor /model/global"
                                         : " does not hold /model/global"));
    }
    std::vector<std::string> found = h5::names_in(file, group);
    for (const Field& field : layout->fields()) {
      if (std::erase(found, field.name) == 0) {
        throw DataError(
            concat(source, " has no parameter '", field.name, "', which the model needs"));
      }
      read_field(file, source, group, "parameter", field, row);
    }
    if (!found.empty()) {
      throw DataError(
          concat(source, " has a parameter '", found.front(), "' that the model does not"));
    }
  });
  return {row.to(type), layout};
}

bool read_initial_factors_(const std::string& path, const Rows& row, InitState state) {
  const std::string source = concat("model.init_file '", path, "'");
  bool found = false;
  with_init_file(source, path, [&](const h5::Handle& file) {
    const std::string group = group_of(file, "factors", state);
    if (!h5::exists(file, group)) return;
    for (const std::string& name : h5::names_in(file, group)) {
      if (row.layout->contains(name)) continue;
      throw DataError(concat(source, " has a factor '", name, "' that the model does not"));
    }
    for (const Field& field : row.layout->fields()) {
      if (!h5::exists(file, group + "/" + field.name)) continue;
      read_field(file, source, group, "factor", field, row.values);
      found = true;
    }
  });
  return found;
}

}  // namespace fedhpc
