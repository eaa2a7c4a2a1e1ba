#include <algorithm>
#include <functional>
#include <span>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/core/error.hpp"
#include "fedhpc/core/options.hpp"

#include "engine/state_file.hpp"
#include "engine/state_paths.hpp"

namespace fedhpc {

namespace {

constexpr std::size_t kDimensions = 8;

/// The shape that rank 0 has found, on every rank.
std::vector<std::int64_t> share_shape(Communicator& comm, const std::vector<hsize_t>& found) {
  Tensor shape = at::zeros({1 + static_cast<std::int64_t>(kDimensions)}, at::kLong);
  auto* sizes = shape.data_ptr<std::int64_t>();
  require(found.size() <= kDimensions, "a state has at most eight dimensions");
  *sizes = static_cast<std::int64_t>(found.size());
  std::copy(found.begin(), found.end(), sizes + 1);
  comm.broadcast_(shape, 0);
  return {sizes + 1, sizes + 1 + *sizes};
}

}  // namespace

h5::Handle StateCheck::open(const std::string& name, at::ScalarType type) const {
  if (!h5::exists(file_, state_path(name))) {
    throw DataError(concat("checkpoint '", path_, "' does not hold the state '", name,
                           "' of the method; give a checkpoint of this run"));
  }
  h5::Handle dataset = h5::open_dataset(file_, state_path(name));
  if (!h5::holds(dataset, state_type(type))) {
    throw DataError(concat("checkpoint '", path_, "': the state '", name, "' is not of type ",
                           c10::toString(type), "; give a checkpoint of this run"));
  }
  return dataset;
}

void StateCheck::check_rows(const std::string& name, at::ScalarType type, std::int64_t count,
                            std::int64_t width) const {
  const std::vector<hsize_t> shape = h5::shape_of(open(name, type));
  if (shape.size() == 2 && (count < 0 || shape.front() == static_cast<hsize_t>(count)) &&
      shape.back() == static_cast<hsize_t>(width)) {
    return;
  }
  std::vector<std::string> sizes;
  for (const hsize_t size : shape) sizes.push_back(concat(size));
  throw DataError(concat("checkpoint '", path_, "' is one of another model: the state '", name,
                         "' has shape [", join(sizes), "], expected ",
                         count < 0 ? "rows" : concat(count, " rows"), " of ", width,
                         "; give a checkpoint of this run"));
}

void StateCheck::tensor(const std::string& name, Tensor& values) {
  const std::size_t found = h5::shape_of(open(name, values.scalar_type())).size();
  if (found == static_cast<std::size_t>(values.dim())) return;
  throw DataError(concat("checkpoint '", path_, "': the state '", name, "' has ", found,
                         " dimensions, expected ", values.dim(),
                         "; give a checkpoint of this run"));
}

void StateCheck::check_ids(const std::string& name) const {
  const auto fail = [&](const std::string& what) {
    throw DataError(concat("checkpoint '", path_, "': the state '", name, "' ", what,
                           "; give a checkpoint of this run"));
  };
  const std::vector<hsize_t> found = h5::shape_of(open(name + "/ids", at::kLong));
  const hsize_t rows = h5::shape_of(h5::open_dataset(file_, state_path(name + "/values"))).front();
  if (found.size() != 1 || found.front() != rows) fail("has other numbers of ids and of rows");
  if (rows > static_cast<hsize_t>(placement_.clients())) fail("has more rows than clients");
  auto ids = h5::read_vector<std::int64_t>(file_, state_path(name + "/ids"));
  std::sort(ids.begin(), ids.end());
  if (ids.empty()) return;
  if (ids.front() < 0 || ids.back() >= placement_.clients()) fail("names a client that is not one");
  if (std::adjacent_find(ids.begin(), ids.end()) != ids.end()) fail("names a client twice");
}

void StateCheck::rows(const std::string& name, Rows& rows) {
  check_rows(name, rows.values.scalar_type(), -1, rows.layout->size());
}

void StateCheck::edges(const std::string& name, EdgeRows& models) {
  check_rows(name, models.rows.values.scalar_type(), placement_.edges(),
             models.rows.layout->size());
}

void StateCheck::clients(ClientStore& store) {
  for (const std::string& name : store.row_names()) {
    const StoredRows& stored = store.rows(name);
    check_rows(kClientRows + name + "/values", stored.type(), -1, stored.layout()->size());
    check_ids(kClientRows + name);
  }
  for (const std::string& name : store.scalar_names()) {
    check_rows(kClientScalars + name + "/values", at::kDouble, -1, 1);
    check_ids(kClientScalars + name);
  }
}

void StateReader::tensor(const std::string& name, Tensor& values) {
  const at::ScalarType type = values.scalar_type();
  h5::Handle dataset;
  if (file_ != nullptr) dataset = h5::open_dataset(*file_, state_path(name));
  const std::vector<std::int64_t> shape =
      share_shape(comm_, dataset ? h5::shape_of(dataset) : std::vector<hsize_t>{});
  Tensor read = at::empty(shape, type);
  if (dataset && read.numel() > 0) h5::read_all(dataset, state_type(type), read.data_ptr());
  comm_.broadcast_(read, 0);
  values = read.to(values.device());
}

void StateReader::edges(const std::string& name, EdgeRows& models) {
  const at::ScalarType type = models.rows.values.scalar_type();
  h5::Handle dataset;
  if (file_ != nullptr) dataset = h5::open_dataset(*file_, state_path(name));
  const std::vector<std::int64_t> shape =
      share_shape(comm_, dataset ? h5::shape_of(dataset) : std::vector<hsize_t>{});
  Tensor row = at::empty({1, shape.back()}, type);
  for (std::int64_t edge = 0; edge < shape.front(); ++edge) {
    if (dataset) {
      h5::read_rows(dataset, state_type(type), static_cast<hsize_t>(edge), 1, row.data_ptr());
    }
    comm_.broadcast_(row, 0);
    if (models.first <= edge && edge < models.first + models.count()) {
      models.rows.values.narrow(0, edge - models.first, 1).copy_(row);
    }
  }
}

void StateReader::clients(ClientStore& store) {
  for (const std::string& name : store.row_names()) {
    StoredRows& stored = store.rows(name);
    stored.clear();
    read_clients(kClientRows + name, store.clients(), stored.layout()->size(), stored.type(),
                 [&](auto clients, const Tensor& values) {
                   const at::Device device = stored.initial().values.device();
                   stored.write(clients, Rows{values.to(device), stored.layout()});
                 });
  }
  for (const std::string& name : store.scalar_names()) {
    ScalarColumn& column = store.scalars(name);
    column.clear();
    read_clients(kClientScalars + name, store.clients(), 1, at::kDouble,
                 [&](auto clients, const Tensor& values) {
                   column.write(clients,
                                std::span(values.const_data_ptr<double>(), clients.size()));
                 });
  }
}

void StateReader::read_clients(const std::string& path, const std::vector<std::int64_t>& own,
                               std::int64_t width, at::ScalarType type, const Write& write) {
  h5::Handle ids_in;
  h5::Handle values_in;
  if (file_ != nullptr) {
    ids_in = h5::open_dataset(*file_, state_path(path) + "/ids");
    values_in = h5::open_dataset(*file_, state_path(path) + "/values");
  }
  const std::vector<std::int64_t> shape =
      share_shape(comm_, ids_in ? h5::shape_of(ids_in) : std::vector<hsize_t>{});
  const std::int64_t step = clients_per_block(width, type);
  for (std::int64_t first = 0; first < shape.front(); first += step) {
    const std::int64_t count = std::min(step, shape.front() - first);
    Tensor ids = at::empty({count}, at::kLong);
    Tensor values = at::empty({count, width}, type);
    if (ids_in) {
      const auto begin = static_cast<hsize_t>(first);
      const auto length = static_cast<hsize_t>(count);
      h5::read_rows(ids_in, h5::type_of<std::int64_t>(), begin, length, ids.data_ptr());
      h5::read_rows(values_in, state_type(type), begin, length, values.data_ptr());
    }
    comm_.broadcast_(ids, 0);
    comm_.broadcast_(values, 0);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t client = ids.const_data_ptr<std::int64_t>()[i];
      if (!std::binary_search(own.begin(), own.end(), client)) continue;
      write(std::span(&client, 1), values.narrow(0, i, 1));
    }
  }
}

}  // namespace fedhpc
