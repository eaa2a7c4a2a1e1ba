// What clients keep between rounds.

#include <algorithm>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "methods.hpp"

namespace fedhpc::python {

namespace {

/// Ids of clients of this rank.
std::vector<std::int64_t> own(const std::string& verb, const ClientStore& store,
                              nb::handle clients) {
  std::vector<std::int64_t> ids = to_ids(verb, clients);
  for (const std::int64_t client : ids) {
    if (!std::ranges::binary_search(store.clients(), client)) {
      refuse(verb, "clients of this rank", concat(client));
    }
  }
  return ids;
}

std::int64_t one(const std::string& verb, const ClientStore& store, std::int64_t client) {
  if (!std::ranges::binary_search(store.clients(), client)) {
    refuse(verb, "a client of this rank", concat(client));
  }
  return client;
}

PyRows read(const PyStoredRows& self, nb::handle clients, const PyRows* otherwise) {
  const StoredRows& stored = self.get();
  const std::vector<std::int64_t> ids = own("rows.read", *self.store, clients);
  if (otherwise == nullptr) return {stored.read(ids)};
  const auto count = static_cast<std::int64_t>(ids.size());
  return {stored.read(ids, wanted_or_one("rows.read", *otherwise, count, stored.layout()))};
}

void write(const PyStoredRows& self, nb::handle clients, const PyRows& rows) {
  StoredRows& stored = self.get();
  const std::vector<std::int64_t> ids = own("rows.write", *self.store, clients);
  require_once("rows.write", "client", ids);
  stored.write(ids,
               wanted("rows.write", rows, static_cast<std::int64_t>(ids.size()), stored.layout()));
}

/// Makes a name of the store known in initialise() alone, where a checkpoint finds it again.
void require_in_time(const PyStore& self, const std::string& verb, const std::string& name,
                     bool known) {
  require_word(verb, name);
  if (self.setup->is_over() ? known : !known) return;
  throw nb::value_error(
      known ? concat(verb, ": the store has '", name, "' already; give the two names").c_str()
            : concat(verb, ": the store has no '", name,
                     "'; initialise() makes what it has, so that a checkpoint finds it")
                  .c_str());
}

/// Refuses the names of what links keep, which setup.open_links() takes.
void require_not_of_links(const std::string& name) {
  for (const std::string_view taken : {"upload_feedback", "downlink"}) {
    if (name != taken && !name.starts_with(concat(taken, "_"))) continue;
    throw nb::value_error(
        concat("store.rows: '", name, "' is a name of fedhpc's own; give the rows another name")
            .c_str());
  }
}

void bind_stored_rows(nb::module_& core) {
  nb::class_<PyStoredRows>(
      core, "StoredRows",
      "One row of each client of this rank, kept between rounds and in checkpoints. A client "
      "never written reads the initial row and takes no memory.")
      .def("read", &read, nb::arg("clients"), nb::arg("otherwise") = nb::none(),
           "The rows of these clients, [C, P] in memory of their own. Who was never written reads "
           "`otherwise`, rows [C, P] or [1, P], or the initial row.")
      .def("write", &write, nb::arg("clients"), nb::arg("rows"),
           "Stores row c of rows [C, P] for clients[c]. block.keep(store, rows) leaves out those "
           "that cannot train.")
      .def(
          "written",
          [](const PyStoredRows& self, std::int64_t client) {
            return self.get().written(one("rows.written", *self.store, client));
          },
          nb::arg("client"), "Whether the client has been written.")
      .def(
          "written_clients",
          [](const PyStoredRows& self) {
            return to_numpy(std::span<const std::int64_t>(self.get().written_clients()));
          },
          "The clients of this rank that have been written, ascending: int64.")
      .def(
          "unwritten",
          [](const PyStoredRows& self, nb::handle clients) {
            return to_numpy(std::span<const std::int64_t>(
                self.get().unwritten(own("rows.unwritten", *self.store, clients))));
          },
          nb::arg("clients"), "Those of these clients that are not written yet, in their order.")
      .def(
          "clear", [](const PyStoredRows& self) { self.get().clear(); },
          "Gives every client the initial row again, and the memory back.")
      .def_prop_ro(
          "initial", [](const PyStoredRows& self) { return PyRows{self.get().initial().clone()}; },
          "A copy of the initial row [1, P].")
      .def_prop_ro(
          "layout", [](const PyStoredRows& self) { return PyLayout{self.get().layout()}; },
          "The names of the columns.");
}

void bind_scalars(nb::module_& core) {
  nb::class_<PyScalars>(
      core, "ScalarColumn",
      "A float64 number of each client of this rank, kept between rounds and in checkpoints.")
      .def(
          "read",
          [](const PyScalars& self, nb::handle clients) {
            const ScalarColumn& column = self.get();
            return to_numpy(std::span<const double>(column.read(
                std::span<const std::int64_t>(own("scalars.read", *self.store, clients)))));
          },
          nb::arg("clients"), "The numbers of these clients: float64 [C].")
      .def(
          "write",
          [](const PyScalars& self, nb::handle clients, nb::handle values) {
            ScalarColumn& column = self.get();
            const std::vector<std::int64_t> ids = own("scalars.write", *self.store, clients);
            require_once("scalars.write", "client", ids);
            const std::vector<double> numbers =
                to_numbers("scalars.write", values, static_cast<std::int64_t>(ids.size()));
            column.write(std::span<const std::int64_t>(ids), std::span<const double>(numbers));
          },
          nb::arg("clients"), nb::arg("values"), "Stores values[c] for clients[c].")
      .def(
          "written",
          [](const PyScalars& self, std::int64_t client) {
            return self.get().written(one("scalars.written", *self.store, client));
          },
          nb::arg("client"), "Whether the client has been written.")
      .def(
          "written_clients",
          [](const PyScalars& self) {
            return to_numpy(std::span<const std::int64_t>(self.get().written_clients()));
          },
          "The clients of this rank that have been written, ascending: int64.")
      .def(
          "clear", [](const PyScalars& self) { self.get().clear(); },
          "Gives every client the initial number.")
      .def_prop_ro(
          "initial", [](const PyScalars& self) { return self.get().initial(); },
          "The number of who was never written.");
}

}  // namespace

void bind_stores(nb::module_& core) {
  bind_stored_rows(core);
  bind_scalars(core);
  nb::class_<PyStore>(core, "ClientStore",
                      "The state of this rank's clients between rounds, by name; checkpoints hold "
                      "it.")
      .def(
          "rows",
          [](const PyStore& self, const std::string& name, const PyRows& initial) {
            self.time->check();
            require_not_of_links(name);
            require_in_time(self, "store.rows", name, self.store->has_rows(name));
            const Rows first = wanted("store.rows", initial, 1);
            if (self.store->has_rows(name) &&
                !same_fields(self.store->rows(name).layout(), first.layout)) {
              refuse("store.rows", "one layout for the rows '" + name + "'", "another one");
            }
            return PyStoredRows{
                &(self.store->has_rows(name) ? self.store->rows(name)
                                             : self.store->rows(name, first.clone())),
                self.store, self.time};
          },
          nb::arg("name"), nb::arg("initial"),
          "A row of each client, which starts as `initial` [1, P]. initialise() makes it; later "
          "the "
          "same name gives it again.")
      .def(
          "scalars",
          [](const PyStore& self, const std::string& name, double initial) {
            self.time->check();
            require_in_time(self, "store.scalars", name, self.store->has_scalars(name));
            return PyScalars{&self.store->scalars(name, initial), self.store, self.time};
          },
          nb::arg("name"), nb::arg("initial") = 0.0, "A number of each client.")
      .def_prop_ro(
          "clients",
          [](const PyStore& self) {
            self.time->check();
            return to_numpy(std::span<const std::int64_t>(self.store->clients()));
          },
          "The clients of this rank, ascending: int64.");
}

}  // namespace fedhpc::python
