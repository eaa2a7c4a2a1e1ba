// Arithmetic and measures of rows.

#include <cmath>
#include <nanobind/operators.h>
#include <nanobind/stl/string.h>

#include "fedhpc/models/row_measures.hpp"
#include "fedhpc/training/penalty.hpp"

#include "bindings.hpp"
#include "training.hpp"

namespace fedhpc::python {

namespace {

/// The second of two operands of one layout and type, one of which may be a single row.
Rows alike(const char* verb, const PyRows& a, const PyRows& b, bool in_place = false) {
  const Rows& left = a.get();
  const bool any_count = !in_place && left.count() == 1;
  return wanted(verb, b,
                {.count = any_count ? -1 : left.count(),
                 .layout = left.layout,
                 .or_one = true,
                 .numbers = left.values.options()});
}

void scale(const PyRows& rows, nb::handle factor, nb::handle columns) {
  const std::variant<double, RowNumbers> chosen =
      to_factor("rows.scale", factor, rows.get().count());
  if (const auto* numbers = std::get_if<RowNumbers>(&chosen)) {
    if (!columns.is_none()) throw nb::type_error("rows.scale with a number per row has no columns");
    scale_(rows.get(), *numbers);
  } else if (columns.is_none()) {
    rows.get().values.mul_(std::get<double>(chosen));
  } else {
    std::string name;
    if (!nb::try_cast(columns, name)) throw nb::type_error("rows.scale's columns are a name");
    scale_columns_(rows.get(), std::get<double>(chosen), to_tag(name));
  }
}

void add(const PyRows& rows, const PyRows& other, nb::handle factor, const std::string& columns) {
  const Rows& to = rows.get();
  const Rows from = apart("rows.add", wanted_like("rows.add", other, rows), to);
  const std::variant<double, RowNumbers> chosen = to_factor("rows.add", factor, to.count());
  if (const auto* numbers = std::get_if<RowNumbers>(&chosen)) {
    add_columns_(to, *numbers, from, to_tag(columns));
  } else {
    add_columns_(to.values, from.values, std::get<double>(chosen), *to.layout, to_tag(columns));
  }
}

void add_difference(const PyRows& rows, const PyRows& a, const PyRows& b, nb::handle factor,
                    const std::string& columns) {
  const Rows& to = rows.get();
  const char* verb = "rows.add_difference";
  const Rows plus = apart(verb, wanted_like(verb, a, rows), to);
  const Rows minus = apart(verb, wanted_like(verb, b, rows), to);
  const std::variant<double, RowNumbers> chosen = to_factor(verb, factor, to.count());
  if (const auto* numbers = std::get_if<RowNumbers>(&chosen)) {
    add_difference_(to, *numbers, plus, minus, to_tag(columns));
  } else {
    add_difference_(to.values, plus.values, minus.values, std::get<double>(chosen), *to.layout,
                    to_tag(columns));
  }
}

/// rows OP= rows or a number, in place: Python's `self` stays the same object.
template <typename Work>
nb::object in_place(const char* verb, nb::object self, const PyRows& other, const Work& work) {
  const auto& rows = nb::cast<const PyRows&>(self);
  work(rows.get().values,
       apart(verb, alike(verb, rows, other, /*in_place=*/true), rows.get()).values);
  return self;
}

void bind_in_place(nb::class_<PyRows>& rows) {
  rows.def(
          "__iadd__",
          [](nb::object self, const PyRows& b) {
            return in_place("rows += rows", self, b, [](auto& x, auto y) { x.add_(y); });
          },
          nb::is_operator(), nb::sig("def __iadd__(self, arg: Rows, /) -> Rows"))
      .def(
          "__isub__",
          [](nb::object self, const PyRows& b) {
            return in_place("rows -= rows", self, b, [](auto& x, auto y) { x.sub_(y); });
          },
          nb::is_operator(), nb::sig("def __isub__(self, arg: Rows, /) -> Rows"))
      .def(
          "__imul__",
          [](nb::object self, const PyRows& b) {
            return in_place("rows *= rows", self, b, [](auto& x, auto y) { x.mul_(y); });
          },
          nb::is_operator(), nb::sig("def __imul__(self, arg: Rows, /) -> Rows"))
      .def(
          "__imul__",
          [](nb::object self, double x) {
            nb::cast<const PyRows&>(self).get().values.mul_(x);
            return self;
          },
          nb::is_operator(), nb::sig("def __imul__(self, arg: float, /) -> Rows"))
      .def(
          "__itruediv__",
          [](nb::object self, const PyRows& b) {
            return in_place("rows /= rows", self, b, [](auto& x, auto y) { x.div_(y); });
          },
          nb::is_operator(), nb::sig("def __itruediv__(self, arg: Rows, /) -> Rows"))
      .def(
          "__itruediv__",
          [](nb::object self, double x) {
            nb::cast<const PyRows&>(self).get().values.div_(x);
            return self;
          },
          nb::is_operator(), nb::sig("def __itruediv__(self, arg: float, /) -> Rows"));
}

void bind_arithmetic(nb::class_<PyRows>& rows) {
  rows.def(
          "__add__",
          [](const PyRows& a, const PyRows& b) {
            return PyRows{a.get() + alike("rows + rows", a, b)};
          },
          nb::is_operator())
      .def(
          "__sub__",
          [](const PyRows& a, const PyRows& b) {
            return PyRows{a.get() - alike("rows - rows", a, b)};
          },
          nb::is_operator())
      .def(
          "__mul__",
          [](const PyRows& a, const PyRows& b) {
            return PyRows{{a.get().values.mul(alike("rows * rows", a, b).values), a.rows.layout}};
          },
          nb::is_operator())
      .def(
          "__mul__", [](const PyRows& a, double x) { return PyRows{x * a.get()}; },
          nb::is_operator())
      .def(
          "__rmul__", [](const PyRows& a, double x) { return PyRows{x * a.get()}; },
          nb::is_operator())
      .def(
          "__truediv__",
          [](const PyRows& a, const PyRows& b) {
            return PyRows{{a.get().values.div(alike("rows / rows", a, b).values), a.rows.layout}};
          },
          nb::is_operator())
      .def(
          "__truediv__",
          [](const PyRows& a, double x) {
            return PyRows{{a.get().values.div(x), a.rows.layout}};
          },
          nb::is_operator())
      .def("__neg__", [](const PyRows& a) { return PyRows{-1.0 * a.get()}; });
}

void bind_verbs(nb::class_<PyRows>& rows) {
  rows.def(
          "assign",
          [](const PyRows& self, const PyRows& other) {
            const Rows& to = self.get();
            to.values.copy_(
                apart("rows.assign", wanted_like("rows.assign", other, self, true), to).values);
          },
          nb::arg("other"), "Takes over the numbers of rows [C, P] or [1, P], in place.")
      .def(
          "approach",
          [](const PyRows& self, const PyRows& target, double share) {
            const Rows& to = self.get();
            approach_(to, apart("rows.approach", wanted_like("rows.approach", target, self), to),
                      share);
          },
          nb::arg("target"), nb::arg("share"),
          "rows += share * (target - rows) on the trainable columns, in place.")
      .def("scale", &scale, nb::arg("factor"), nb::arg("columns") = nb::none(),
           "rows *= factor in place: a number, for all columns or those of one kind, or a number "
           "of each row (RowNumbers, a list or an array [C]).")
      .def("add", &add, nb::arg("other"), nb::arg("factor") = 1.0, nb::arg("columns") = "trainable",
           "rows += factor * other on the columns of one kind, in place. The factor is a number "
           "or a number of each row; a row of factor 0 stays.")
      .def("add_difference", &add_difference, nb::arg("a"), nb::arg("b"), nb::arg("factor") = 1.0,
           nb::arg("columns") = "trainable",
           "rows += factor * (a - b) on those columns, in place; the difference is taken first.")
      .def(
          "copy_columns",
          [](const PyRows& self, const PyRows& from, const std::string& columns) {
            const char* verb = "rows.copy_columns";
            const Rows& to = self.get();
            copy_columns_(to, apart(verb, wanted_like(verb, from, self), to), to_tag(columns));
          },
          nb::arg("source"), nb::arg("columns"), "Copies the columns of one kind, in place.")
      .def(
          "descend",
          [](const PyRows& self, double lr, double mu, const PyRows* centre, double gamma,
             double rho) {
            const Rows& moved = self.get();
            const Penalty penalty =
                penalty_of("rows.descend", mu, centre, gamma, rho, moved.count(), moved.layout);
            if (centre != nullptr) apart("rows.descend's centre", penalty.centre, moved);
            descend_(moved, lr, penalty);
          },
          nb::arg("lr"), nb::kw_only(), nb::arg("mu") = 0.0, nb::arg("centre") = nb::none(),
          nb::arg("gamma") = 0.0, nb::arg("rho") = 1.0,
          "One gradient step on mu/2 ||w - centre||^2 + gamma rho sum log cosh(w / rho) alone, "
          "over "
          "the trainable columns, in place.")
      .def(
          "zero_small",
          [](const PyRows& self, double threshold) {
            if (!(threshold >= 0)) {
              refuse("rows.zero_small", "threshold of at least 0", concat(threshold));
            }
            zero_small_(self.get(), threshold);
          },
          nb::arg("threshold"), "Sets trainable entries of this magnitude or less to 0, in place.")
      .def(
          "squared_lengths", [](const PyRows& self) { return squared_lengths(self.get()); },
          "||row||^2 over the trainable columns, summed in float64: RowNumbers [C].")
      .def(
          "inner_products",
          [](const PyRows& self, const PyRows& other) {
            const Rows b = wanted_like("rows.inner_products", other, self, true);
            RowProducts products = inner_products(self.get(), b);
            return nb::make_tuple(std::move(products.aa), std::move(products.ab));
          },
          nb::arg("other"),
          "(<a, a>, <a, b>) of each row over all columns in float64: two RowNumbers [C]. `other` "
          "[C, P] or [1, P].")
      .def(
          "densities",
          [](const PyRows& self) {
            return to_numpy(std::span<const double>(densities(self.get())));
          },
          "The share of each row's trainable entries that is not 0: float64 [C].")
      .def(
          "count_nonzero",
          [](const PyRows& self) {
            return to_numpy(std::span<const std::int64_t>(count_nonzero(self.get())));
          },
          "How many of each row's trainable entries are not 0: int64 [C].")
      .def(
          "count_plateaus",
          [](const PyRows& self) {
            return to_numpy(std::span<const std::int64_t>(count_plateaus(self.get())));
          },
          "How many runs of equal neighbours each row has, over all columns: int64 [C].")
      .def(
          "smoothed_l1",
          [](const PyRows& self, double rho) {
            if (!(rho > 0 && std::isfinite(rho))) {
              refuse("rows.smoothed_l1", "rho above 0", concat(rho));
            }
            return to_numpy(std::span<const double>(smoothed_l1(self.get(), rho)));
          },
          nb::arg("rho"), "rho sum log cosh(w / rho) of each row: float64 [C].");
}

}  // namespace

void bind_row_verbs(nb::class_<PyRows>& rows) {
  bind_arithmetic(rows);
  bind_in_place(rows);
  bind_verbs(rows);
}

}  // namespace fedhpc::python
