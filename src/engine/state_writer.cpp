#include <functional>
#include <span>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "fedhpc/core/device.hpp"

#include "engine/state_file.hpp"
#include "engine/state_paths.hpp"

namespace fedhpc {

namespace {

std::vector<hsize_t> shape_of(const Tensor& values) {
  return {values.sizes().begin(), values.sizes().end()};
}

std::int64_t bytes_of(const Tensor& values) { return static_cast<std::int64_t>(values.nbytes()); }

Tensor ids_of(std::span<const std::int64_t> clients) {
  Tensor ids = at::empty({static_cast<std::int64_t>(clients.size())}, at::kLong);
  std::copy(clients.begin(), clients.end(), ids.data_ptr<std::int64_t>());
  return ids;
}

[[noreturn]] void refuse_state(const std::string& name, const std::string& what) {
  throw Error(concat("visit_state() cannot keep '", name, "': ", what));
}

void check_name(const std::string& name) {
  if (!name.empty() && name.find('/') == std::string::npos) return;
  refuse_state(name, "a name is a word without '/'");
}

}  // namespace

void refuse_late_state(const std::string& name) {
  refuse_state(
      name, "it is visited after a round and not before it; give it some numbers in initialise()");
}

void StateSize::check(const std::string& name, const Tensor& values) {
  check_name(name);
  const auto refuse = [&](const std::string& what) { refuse_state(name, what); };
  if (name == kClients || name == kPartial) refuse("it is a name of fedhpc's own; take another");
  if (!names_.insert(name).second) refuse("another state has this name");
  if (!values.defined()) refuse("it has no numbers; give it some in initialise()");
  if (is_state_type(values.scalar_type())) return;
  refuse(concat("it is of type ", c10::toString(values.scalar_type()),
                ", and a state of float32, float64 or int64"));
}

void StateSize::tensor(const std::string& name, Tensor& values) {
  check(name, values);
  common_bytes_ += bytes_of(values);
}

void StateSize::edges(const std::string& name, EdgeRows& models) {
  check(name, models.rows.values);
  // A file has a row for each edge, of which several ranks may hold one.
  common_bytes_ += placement_.edges() * models.rows.layout->size() *
                   static_cast<std::int64_t>(models.rows.values.element_size());
}

void StateSize::clients(ClientStore& store) {
  constexpr std::int64_t kNumber = sizeof(std::int64_t);
  for (const std::string& name : store.row_names()) {
    check_name(name);
    names_.insert(kClientRows + name);
    const StoredRows& stored = store.rows(name);
    const auto row =
        stored.layout()->size() * static_cast<std::int64_t>(c10::elementSize(stored.type()));
    own_bytes_ += static_cast<std::int64_t>(stored.written_clients().size()) * (row + kNumber);
    full_own_bytes_ += stored.full_bytes();
  }
  for (const std::string& name : store.scalar_names()) {
    check_name(name);
    names_.insert(kClientScalars + name);
    const ScalarColumn& column = store.scalars(name);
    own_bytes_ += static_cast<std::int64_t>(column.written_clients().size()) * 2 * kNumber;
    full_own_bytes_ += 2 * column.full_bytes();
  }
}

void StateWriter::tensor(const std::string& name, Tensor& values) {
  comm_.progress();
  if (file_ == nullptr) return;
  const Tensor whole = on_host(values).contiguous();
  const h5::Type type = state_type(whole.scalar_type());
  const h5::Handle dataset = h5::create_dataset(*file_, state_path(name), type, shape_of(whole));
  if (whole.numel() > 0) h5::write_all(dataset, type, whole.data_ptr());
}

void StateWriter::edges(const std::string& name, EdgeRows& models) {
  const h5::Type type = state_type(models.rows.values.scalar_type());
  const std::int64_t width = models.rows.layout->size();
  h5::Handle dataset;
  if (file_ != nullptr) {
    dataset =
        h5::create_dataset(*file_, state_path(name), type,
                           {static_cast<hsize_t>(placement_.edges()), static_cast<hsize_t>(width)});
  }
  for (std::int64_t edge = 0; edge < placement_.edges(); ++edge) {
    const bool leads = placement_.ranks_of_edge(edge).first == comm_.rank();
    const Tensor row =
        leads ? on_host(models.rows.values.narrow(0, edge - models.first, 1)).contiguous()
              : at::empty({0, width}, models.rows.values.scalar_type());
    const Tensor received = comm_.gather(row, 0);
    if (dataset) {
      h5::write_rows(dataset, type, static_cast<hsize_t>(edge), 1, received.data_ptr());
    }
  }
}

void StateWriter::clients(ClientStore& store) {
  for (const std::string& name : store.row_names()) {
    const StoredRows& stored = store.rows(name);
    write_clients(kClientRows + name, stored.written_clients(), stored.layout()->size(),
                  stored.type(), [&](auto clients) { return stored.read(clients).values; });
  }
  for (const std::string& name : store.scalar_names()) {
    const ScalarColumn& column = store.scalars(name);
    write_clients(
        kClientScalars + name, column.written_clients(), 1, at::kDouble, [&](auto clients) {
          const std::vector<double> values = column.read(clients);
          Tensor read = at::empty({static_cast<std::int64_t>(values.size()), 1}, at::kDouble);
          std::copy(values.begin(), values.end(), read.data_ptr<double>());
          return read;
        });
  }
}

void StateWriter::write_clients(const std::string& path, const std::vector<std::int64_t>& written,
                                std::int64_t width, at::ScalarType type, const Read& read) {
  // A share of a block from every rank, so that rank 0 never holds more than a block.
  const std::int64_t step =
      std::max<std::int64_t>(1, clients_per_block(width, type) / comm_.size());
  const auto count = static_cast<std::int64_t>(written.size());
  Tensor blocks = at::full({1}, (count + step - 1) / step, at::kLong);
  comm_.max_(blocks);
  Tensor total = at::full({1}, count, at::kLong);
  comm_.sum_(total);
  h5::Handle ids_out;
  h5::Handle values_out;
  if (file_ != nullptr) {
    const auto rows = static_cast<hsize_t>(total.item<std::int64_t>());
    ids_out =
        h5::create_dataset(*file_, state_path(path) + "/ids", h5::type_of<std::int64_t>(), {rows});
    values_out = h5::create_dataset(*file_, state_path(path) + "/values", state_type(type),
                                    {rows, static_cast<hsize_t>(width)});
  }
  hsize_t next = 0;
  for (std::int64_t b = 0; b < blocks.item<std::int64_t>(); ++b) {
    const std::int64_t first = std::min(b * step, count);
    const auto length = static_cast<std::size_t>(std::min(step, count - first));
    const auto some = std::span(written).subspan(static_cast<std::size_t>(first), length);
    const Tensor values =
        some.empty() ? at::empty({0, width}, type) : on_host(read(some)).contiguous();
    const Tensor all_ids = comm_.gather(ids_of(some), 0);
    const Tensor all_values = comm_.gather(values, 0);
    if (!ids_out) continue;
    const auto rows = static_cast<hsize_t>(all_ids.size(0));
    h5::write_rows(ids_out, h5::type_of<std::int64_t>(), next, rows, all_ids.data_ptr());
    h5::write_rows(values_out, state_type(type), next, rows, all_values.data_ptr());
    next += rows;
  }
}

}  // namespace fedhpc
