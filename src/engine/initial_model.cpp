#include <algorithm>

#include <ATen/ops/empty.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/engine/experiment.hpp"
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

Rows read_initial_model(const std::string& path, const LayoutPtr& layout, at::ScalarType type) {
  std::vector<NamedTensor> found;
  try {
    const h5::Handle file = h5::open_input(path);
    const bool initial = h5::exists(file, "/model/init/global");
    if (!initial && !h5::exists(file, "/model/global")) {
      throw DataError(concat("model.init_file '", path,
                             "' holds neither /model/init/global nor /model/global"));
    }
    found = read_parameters(file, initial ? "/model/init/global" : "/model/global");
  } catch (const DataError&) {
    throw;
  } catch (const Error& error) {
    throw DataError(concat("model.init_file '", path, "' cannot be read: ", error.what(),
                           "; give a result file RUN.h5"));
  }

  Tensor row = at::empty({1, layout->size()}, at::kDouble);
  for (const Field& field : layout->fields()) {
    const auto match = std::find_if(found.begin(), found.end(), [&](const NamedTensor& parameter) {
      return parameter.name == field.name;
    });
    if (match == found.end()) {
      throw DataError(concat("model.init_file '", path, "' has no parameter '", field.name,
                             "', which the model needs"));
    }
    if (match->values.sizes().vec() != field.shape) {
      throw DataError(concat("model.init_file '", path, "': parameter '", field.name,
                             "' has shape ", match->values.sizes(), ", the model needs ",
                             at::IntArrayRef(field.shape)));
    }
    row.narrow(1, field.offset, field.size).copy_(match->values.reshape({1, field.size}));
    found.erase(match);
  }
  if (!found.empty()) {
    throw DataError(concat("model.init_file '", path, "' has a parameter '", found.front().name,
                           "' that the model does not"));
  }
  return {row.to(type), layout};
}

void read_initial_factors_(const std::string& path, const Rows& row) {
  const h5::Handle file = h5::open_input(path);
  const std::string group =
      h5::exists(file, "/model/init/factors") ? "/model/init/factors" : "/model/factors";
  if (!h5::exists(file, group)) return;
  for (const NamedTensor& found : read_parameters(file, group)) {
    for (const Field& field : row.layout->fields()) {
      if (field.name != found.name) continue;
      if (found.values.sizes().vec() != field.shape) {
        throw DataError(concat("model.init_file '", path, "': factor '", field.name, "' has shape ",
                               found.values.sizes(), ", the model needs ",
                               at::IntArrayRef(field.shape)));
      }
      row.values.narrow(1, field.offset, field.size).copy_(found.values.reshape({1, field.size}));
    }
  }
}

}  // namespace fedhpc
