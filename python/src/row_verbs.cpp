// Arithmetic and measures of rows.

#include <nanobind/operators.h>
#include <nanobind/stl/string.h>

#include "fedhpc/models/row_measures.hpp"
#include "fedhpc/training/penalty.hpp"

#include "bindings.hpp"
#include "training.hpp"

namespace fedhpc::python {

namespace {

/// Two operands of one layout, one of which may be a single row.
void require_alike(const char* verb, const PyRows& a, const PyRows& b, bool in_place = false) {
  const Rows& left = a.get();
  const Rows& right = b.get();
  const bool counts =
      left.count() == right.count() || right.count() == 1 || (!in_place && left.count() == 1);
  if (!counts || left.layout->size() != right.layout->size()) {
    refuse(verb, "rows " + shape_text(left.values), shape_text(right.values));
  }
  if (left.layout != right.layout) refuse(verb, "rows of one layout", "two layouts");
}

void scale(const PyRows& rows, nb::handle factor, nb::handle columns) {
  RowNumbers* numbers = nullptr;
  if (nb::try_cast(factor, numbers) && numbers != nullptr) {
    if (!columns.is_none()) throw nb::type_error("rows.scale with a number per row has no columns");
    if (numbers->count() != rows.get().count()) {
      refuse("rows.scale", concat(rows.get().count(), " numbers"), concat(numbers->count()));
    }
    scale_(rows.get(), *numbers);
  } else if (columns.is_none()) {
    rows.get().values.mul_(nb::cast<double>(factor));
  } else {
    scale_columns_(rows.get(), nb::cast<double>(factor), to_tag(nb::cast<std::string>(columns)));
  }
}

void add(const PyRows& rows, const PyRows& other, nb::handle factor, const std::string& columns) {
  const Rows& to = rows.get();
  const Rows& from = wanted("rows.add", other, to.count(), to.layout);
  RowNumbers* numbers = nullptr;
  if (nb::try_cast(factor, numbers) && numbers != nullptr) {
    add_columns_(to, *numbers, from, to_tag(columns));
  } else {
    add_columns_(to.values, from.values, nb::cast<double>(factor), *to.layout, to_tag(columns));
  }
}

void add_difference(const PyRows& rows, const PyRows& a, const PyRows& b, nb::handle factor,
                    const std::string& columns) {
  const Rows& to = rows.get();
  const Rows& plus = wanted("rows.add_difference", a, to.count(), to.layout);
  const Rows& minus = wanted("rows.add_difference", b, to.count(), to.layout);
  RowNumbers* numbers = nullptr;
  if (nb::try_cast(factor, numbers) && numbers != nullptr) {
    add_difference_(to, *numbers, plus, minus, to_tag(columns));
  } else {
    add_difference_(to.values, plus.values, minus.values, nb::cast<double>(factor), *to.layout,
                    to_tag(columns));
  }
}

void bind_arithmetic(nb::class_<PyRows>& rows) {
  rows.def(
          "__add__",
          [](const PyRows& a, const PyRows& b) {
            require_alike("rows + rows", a, b);
            return PyRows{a.get() + b.get()};
          },
          nb::is_operator())
      .def(
          "__sub__",
          [](const PyRows& a, const PyRows& b) {
            require_alike("rows - rows", a, b);
            return PyRows{a.get() - b.get()};
          },
          nb::is_operator())
      .def(
          "__mul__",
          [](const PyRows& a, const PyRows& b) {
            require_alike("rows * rows", a, b);
            return PyRows{{a.get().values.mul(b.get().values), a.rows.layout}};
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
          [](const PyRows& a, double x) {
            return PyRows{{a.get().values.div(x), a.rows.layout}};
          },
          nb::is_operator())
      .def("__neg__", [](const PyRows& a) { return PyRows{-1.0 * a.get()}; })
      .def(
          "__iadd__",
          [](nb::object self, const PyRows& b) {
            const auto& a = nb::cast<const PyRows&>(self);
            require_alike("rows += rows", a, b, /*in_place=*/true);
            a.get().values.add_(b.get().values);
            return self;
          },
          nb::is_operator())
      .def(
          "__isub__",
          [](nb::object self, const PyRows& b) {
            const auto& a = nb::cast<const PyRows&>(self);
            require_alike("rows -= rows", a, b, /*in_place=*/true);
            a.get().values.sub_(b.get().values);
            return self;
          },
          nb::is_operator())
      .def(
          "__imul__",
          [](nb::object self, double x) {
            nb::cast<const PyRows&>(self).get().values.mul_(x);
            return self;
          },
          nb::is_operator());
}

void bind_verbs(nb::class_<PyRows>& rows) {
  rows.def(
          "assign",
          [](const PyRows& self, const PyRows& other) {
            self.get().values.copy_(
                wanted_or_one("rows.assign", other, self.get().count(), self.rows.layout).values);
          },
          nb::arg("other"), "Takes over the numbers of rows [C, P] or [1, P], in place.")
      .def(
          "approach",
          [](const PyRows& self, const PyRows& target, double share) {
            approach_(self.get(),
                      wanted("rows.approach", target, self.get().count(), self.rows.layout), share);
          },
          nb::arg("target"), nb::arg("share"),
          "rows += share * (target - rows) on the trainable columns, in place.")
      .def("scale", &scale, nb::arg("factor"), nb::arg("columns") = nb::none(),
           "rows *= factor in place: a number, for all columns or those of one kind, or a number "
           "of each row (RowNumbers).")
      .def("add", &add, nb::arg("other"), nb::arg("factor") = 1.0, nb::arg("columns") = "trainable",
           "rows += factor * other on the columns of one kind, in place. The factor is a number "
           "or a number of each row; a row of factor 0 stays.")
      .def("add_difference", &add_difference, nb::arg("a"), nb::arg("b"), nb::arg("factor") = 1.0,
           nb::arg("columns") = "trainable",
           "rows += factor * (a - b) on those columns, in place; the difference is taken first.")
      .def(
          "copy_columns",
          [](const PyRows& self, const PyRows& from, const std::string& columns) {
            copy_columns_(self.get(),
                          wanted("rows.copy_columns", from, self.get().count(), self.rows.layout),
                          to_tag(columns));
          },
          nb::arg("source"), nb::arg("columns"), "Copies the columns of one kind, in place.")
      .def(
          "descend",
          [](const PyRows& self, double lr, double mu, const PyRows* centre, double gamma,
             double rho) {
            const Rows& moved = self.get();
            descend_(
                moved, lr,
                penalty_of("rows.descend", mu, centre, gamma, rho, moved.count(), moved.layout));
          },
          nb::arg("lr"), nb::kw_only(), nb::arg("mu") = 0.0, nb::arg("centre") = nb::none(),
          nb::arg("gamma") = 0.0, nb::arg("rho") = 1.0,
          "One gradient step on mu/2 ||w - centre||^2 + gamma rho sum log cosh(w / rho) alone, "
          "over "
          "the trainable columns, in place.")
      .def(
          "zero_small",
          [](const PyRows& self, double threshold) { zero_small_(self.get(), threshold); },
          nb::arg("threshold"), "Sets trainable entries of this magnitude or less to 0, in place.")
      .def(
          "squared_lengths", [](const PyRows& self) { return squared_lengths(self.get()); },
          "||row||^2 over the trainable columns, summed in float64: RowNumbers [C].")
      .def(
          "inner_products",
          [](const PyRows& self, const PyRows& other) {
            const Rows& b =
                wanted_or_one("rows.inner_products", other, self.get().count(), self.rows.layout);
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
            return to_numpy(std::span<const double>(smoothed_l1(self.get(), rho)));
          },
          nb::arg("rho"), "rho sum log cosh(w / rho) of each row: float64 [C].");
}

}  // namespace

void bind_row_verbs(nb::class_<PyRows>& rows) {
  bind_arithmetic(rows);
  bind_verbs(rows);
}

}  // namespace fedhpc::python
