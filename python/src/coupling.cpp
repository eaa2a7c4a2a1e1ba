// Algebra between the clients of all ranks.

#include <algorithm>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "fedhpc/core/device.hpp"

#include "bindings.hpp"
#include "engine_calls.hpp"
#include "rounds.hpp"

namespace fedhpc::python {

namespace {

struct PyCoupling {
  Coupling coupling;
  std::int64_t own;  // clients of this rank
  RoundSessionPtr session;

  const Coupling& get() const {
    session->time()->check();
    return coupling;
  }
  /// For what is collective.
  const Coupling& together(const std::string& verb) const {
    session->require_no_loop("coupling." + verb);
    return get();
  }
  Rows rows(const std::string& verb, const PyRows& rows, const LayoutPtr& layout = nullptr) const {
    return wanted("coupling." + verb, rows, own, layout);
  }
  Tensor pairs(const std::string& verb, nb::handle matrix) const {
    return to_matrix("coupling." + verb, matrix, coupling.count(), coupling.count());
  }
};

NumpyArray squared_distances(const PyCoupling& self, const PyRows& a, const PyRows& b,
                             nb::handle columns) {
  const Rows one = self.rows("squared_distances", a);
  const Rows other = self.rows("squared_distances", b, one.layout);
  const ColumnRanges ranges = ranges_of(*one.layout, columns);
  return to_numpy(without_lock(
      [&] { return self.together("squared_distances").squared_distances(one, other, ranges); }));
}

NumpyArray dots(const PyCoupling& self, const PyRows& a, const PyRows& b, nb::handle columns,
                const PyRows* reference) {
  const Rows one = self.rows("dots", a);
  const Rows other = self.rows("dots", b, one.layout);
  const Rows centre =
      reference == nullptr ? Rows{} : wanted("coupling.dots", *reference, 1, one.layout);
  const ColumnRanges ranges = ranges_of(*one.layout, columns);
  return to_numpy(
      without_lock([&] { return self.together("dots").dots(one, other, ranges, centre); }));
}

NumpyArray over_pairs(const PyCoupling& self, const nb::list& matrices, std::int64_t columns,
                      const nb::callable& value) {
  std::vector<Tensor> own;
  for (nb::handle matrix : matrices) {
    own.push_back(to_matrix("coupling.over_pairs", matrix, -1, columns));
  }
  if (static_cast<std::int64_t>(own.size()) != self.own) {
    refuse("coupling.over_pairs", concat(self.own, " matrices"), concat(own.size()));
  }
  const auto of_pair = [&](const Tensor& a, const Tensor& b) {
    const nb::gil_scoped_acquire lock;
    return to_number("what the value of coupling.over_pairs returns",
                     value(to_numpy(a, false), to_numpy(b, false)));
  };
  return to_numpy(
      without_lock([&] { return self.together("over_pairs").over_pairs(own, columns, of_pair); }));
}

NumpyArray all_rows(const PyCoupling& self, nb::handle values) {
  const Tensor own = to_tensor("coupling.all_rows", values);
  if (own.dim() < 1 || own.size(0) != self.own) {
    refuse("coupling.all_rows", concat("an array [", self.own, ", ...]"), shape_text(own));
  }
  return to_numpy(without_lock([&] { return self.together("all_rows").all_rows(own); }));
}

std::int64_t whole_multiple(std::int64_t multiple) {
  if (multiple < 1) refuse("coupling", "a multiple of at least 1", concat(multiple));
  return multiple;
}

NumpyArray to_columns_of_all(const PyCoupling& self, const PyRows& rows, std::int64_t multiple) {
  const Rows own = self.rows("to_columns", rows);
  whole_multiple(multiple);
  return to_numpy(
      without_lock([&] { return self.together("to_columns").to_columns(own, multiple); }));
}

void from_columns(const PyCoupling& self, const PyRows& rows, nb::handle columns,
                  std::int64_t multiple) {
  const Rows own = self.rows("from_columns", rows);
  const Range range = self.get().own_columns(own.layout->size(), whole_multiple(multiple));
  const Tensor values = to_tensor("coupling.from_columns", columns);
  if (values.dim() != 2 || values.size(0) != self.get().count() || values.size(1) != range.size()) {
    refuse("coupling.from_columns", "an array " + shape_text(self.get().count(), range.size()),
           shape_text(values));
  }
  const nb::gil_scoped_release unlocked;
  self.together("from_columns").from_columns_(own, values.to(own.values.scalar_type()), multiple);
}

}  // namespace

nb::object coupling_of(const PyRound& round, nb::handle ids) {
  round.session->require_no_loop("round.coupling");
  const std::vector<std::int64_t> own = to_ids("round.coupling", ids);
  const std::vector<std::int64_t>& known = round.session->store().clients();
  for (const std::int64_t client : own) {
    if (!std::ranges::binary_search(known, client)) {
      refuse("round.coupling", "clients of this rank", concat(client));
    }
  }
  require_once("round.coupling", "client", own);
  const auto count = static_cast<std::int64_t>(own.size());
  return nb::cast(without_lock([&] {
    return std::make_unique<PyCoupling>(
        PyCoupling{round.session->get().coupling(own), count, round.session});
  }));
}

void bind_coupling(nb::module_& core) {
  nb::class_<PyCoupling>(
      core, "Coupling",
      "Algebra between the clients of all ranks: round.coupling(ids). This rank has n of them, "
      "with "
      "rows [n, P] in the order of its ids; N clients of all ranks, ascending. All calls are "
      "collective, after the loop over blocks. Sums are in float64 and the same on any number of "
      "ranks.")
      .def_prop_ro(
          "ids",
          [](const PyCoupling& self) {
            return to_numpy(std::span<const std::int64_t>(self.get().ids()));
          },
          "The clients of all ranks, ascending: int64 [N].")
      .def("__len__", [](const PyCoupling& self) { return self.get().count(); })
      .def("all_rows", &all_rows, nb::arg("values"),
           "One entry per client of this rank, [n, ...], of all clients on every rank: [N, ...].")
      .def("squared_distances", &squared_distances, nb::arg("a"), nb::arg("b"),
           nb::arg("columns") = "trainable",
           "||a_i - b_j||^2 over these columns for all clients i and j: float64 [N, N].")
      .def("dots", &dots, nb::arg("a"), nb::arg("b"), nb::arg("columns") = "trainable",
           nb::arg("reference") = nb::none(),
           "<a_i - reference, b_j - reference> over these columns: float64 [N, N]. `reference` "
           "[1, P] or None.")
      .def(
          "mix",
          [](const PyCoupling& self, nb::handle coefficients, const PyRows& rows) {
            const Tensor matrix = self.pairs("mix", coefficients);
            const Rows own = self.rows("mix", rows);
            const nb::gil_scoped_release unlocked;
            return PyRows{self.together("mix").mix(matrix, own)};
          },
          nb::arg("coefficients"), nb::arg("rows"),
          "sum_j coefficients[i, j] rows_j for this rank's clients i, [n, P].")
      .def(
          "approach",
          [](const PyCoupling& self, nb::handle shares, const PyRows& rows) {
            const Tensor matrix = self.pairs("approach", shares);
            const Rows own = self.rows("approach", rows);
            const nb::gil_scoped_release unlocked;
            return PyRows{self.together("approach").approach(matrix, own)};
          },
          nb::arg("shares"), nb::arg("rows"),
          "rows_i + sum_j shares[i, j] (rows_j - rows_i) for this rank's clients i, [n, P].")
      .def(
          "own_columns",
          [](const PyCoupling& self, std::int64_t columns, std::int64_t multiple) {
            const Range range = self.get().own_columns(columns, whole_multiple(multiple));
            return nb::make_tuple(range.first, range.last);
          },
          nb::arg("columns"), nb::arg("multiple") = 1,
          "The columns (begin, end) of P that this rank gets from to_columns.")
      .def("to_columns", &to_columns_of_all, nb::arg("rows"), nb::arg("multiple") = 1,
           "Transposes rows [n, P] over ranks: own_columns of all clients, [N, w].")
      .def("from_columns", &from_columns, nb::arg("rows"), nb::arg("columns"),
           nb::arg("multiple") = 1, "Puts columns [N, w] back into the clients' rows [n, P].")
      .def("over_pairs", &over_pairs, nb::arg("matrices"), nb::arg("columns"), nb::arg("value"),
           "value(a_i, a_j) for all clients i and j: float64 [N, N]. This rank gives a matrix "
           "[n_i, columns] per client; `value` is symmetric and asked for i <= j alone.");
}

}  // namespace fedhpc::python
