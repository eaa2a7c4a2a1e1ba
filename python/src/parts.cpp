// Numbers of rows, parts of rows, rows of edges, random columns.

#include <nanobind/operators.h>
#include <nanobind/stl/string.h>

#include "fedhpc/core/tensor.hpp"
#include "fedhpc/rounds/random_columns.hpp"

#include "bindings.hpp"
#include "rows.hpp"

namespace fedhpc::python {

namespace {

void require_as_many(const RowNumbers& a, const RowNumbers& b) {
  if (a.count() != b.count())
    refuse("RowNumbers", concat(a.count(), " numbers"), concat(b.count()));
}

void bind_numbers(nb::module_& core) {
  nb::class_<RowNumbers>(
      core, "RowNumbers",
      "A float64 number of each of C rows. + - * and / with numbers, quotients "
      "of two; rows.scale and rows.add take them. Rows on a GPU do not wait for them.")
      .def(
          "__init__",
          [](RowNumbers* self, nb::handle values) {
            new (self) RowNumbers(to_numbers("RowNumbers", values));
          },
          nb::arg("values"), "From a list or an array [C].")
      .def_prop_ro(
          "values",
          [](const RowNumbers& self) { return to_numpy(std::span<const double>(self.values())); },
          "A copy as a numpy array [C]; on a GPU the host waits for them.")
      .def(
          "__array__",
          [](const RowNumbers& self, nb::object dtype, nb::object copy) {
            if (!copy.is_none() && !nb::cast<bool>(nb::bool_(copy))) {
              throw nb::value_error("RowNumbers as an array are a copy, which copy=False forbids");
            }
            const nb::object array = to_numpy(std::span<const double>(self.values()));
            return dtype.is_none() ? array : array.attr("astype")(dtype);
          },
          nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none())
      .def("__len__", &RowNumbers::count)
      .def("__getitem__",
           [](const RowNumbers& self, std::int64_t c) {
             if (c < 0) c += self.count();
             if (c < 0 || c >= self.count()) throw nb::index_error("no such row");
             return self.values()[static_cast<std::size_t>(c)];
           })
      .def(
          "__add__", [](const RowNumbers& a, double x) { return x + a; }, nb::is_operator())
      .def(
          "__radd__", [](const RowNumbers& a, double x) { return x + a; }, nb::is_operator())
      .def(
          "__sub__", [](const RowNumbers& a, double x) { return -x + a; }, nb::is_operator())
      .def(
          "__rsub__", [](const RowNumbers& a, double x) { return x + -1.0 * a; }, nb::is_operator())
      .def(
          "__mul__", [](const RowNumbers& a, double x) { return x * a; }, nb::is_operator())
      .def(
          "__rmul__", [](const RowNumbers& a, double x) { return x * a; }, nb::is_operator())
      .def(
          "__rtruediv__", [](const RowNumbers& a, double x) { return x / a; }, nb::is_operator())
      .def(
          "__truediv__", [](const RowNumbers& a, double x) { return a / x; }, nb::is_operator())
      .def(
          "__truediv__",
          [](const RowNumbers& a, const RowNumbers& b) {
            require_as_many(a, b);
            return a / b;
          },
          nb::is_operator())
      .def(
          "sqrt", [](const RowNumbers& a) { return sqrt(a); }, "The square roots.")
      .def(
          "at_most", [](const RowNumbers& a, double most) { return at_most(a, most); },
          nb::arg("most"), "The numbers below `most`, and `most` in the place of others.")
      .def(
          "where_positive",
          [](const RowNumbers& a, const RowNumbers& of) {
            require_as_many(a, of);
            return where_positive(of, a);
          },
          nb::arg("of"), "The numbers where those of `of` are above 0, else 0.")
      .def(
          "__repr__",
          [](const RowNumbers& self) { return concat("<fedhpc.RowNumbers [", self.count(), "]>"); })
      .attr("__array_ufunc__") = nb::none();
}

/// A part, and the layout that it is from.
struct PyRowPart {
  RowPart part;
  LayoutPtr whole;

  Rows whole_rows(const std::string& verb, const PyRows& rows) const {
    return wanted(verb, rows,
                  {.layout = whole,
                   .of = " of the layout that the part is from",
                   .numbers = rows.get().values.options()});
  }
  Rows part_rows(const std::string& verb, const PyRows& rows, const Rows& of,
                 bool or_one = false) const {
    return wanted(verb, rows,
                  {.count = of.count(),
                   .layout = part.layout(),
                   .or_one = or_one,
                   .of = " of the part",
                   .numbers = of.values.options()});
  }
};

RowNumbers to_numbers_of_rows(const std::string& verb, nb::handle factors, std::int64_t count) {
  const std::variant<double, RowNumbers> chosen = to_factor(verb, factors, count);
  if (const auto* number = std::get_if<double>(&chosen)) {
    return RowNumbers(std::vector<double>(static_cast<std::size_t>(count), *number));
  }
  return std::get<RowNumbers>(chosen);
}

void bind_part(nb::module_& core) {
  nb::class_<PyRowPart>(
      core, "RowPart",
      "Some columns of a layout as rows of their own: the part of a model that travels, or stays "
      "with a client.")
      .def(
          "__init__",
          [](PyRowPart* self, nb::handle layout, nb::handle columns, std::int64_t first_field) {
            const LayoutPtr whole = to_layout(layout);
            const auto fields = static_cast<std::int64_t>(whole->fields().size());
            if (first_field < 0 || first_field > fields) {
              refuse("RowPart", concat("a first field from 0 to ", fields), concat(first_field));
            }
            new (self) PyRowPart{
                RowPart(whole, static_cast<std::size_t>(first_field), to_columns(columns)), whole};
          },
          nb::arg("layout"), nb::arg("columns") = nb::none(), nb::arg("first_field") = 0,
          "The columns of these kinds ('head', 'body', 'trainable -norm'), of the fields from "
          "number `first_field` on. `layout` may be rows that have it.")
      .def_prop_ro(
          "layout", [](const PyRowPart& self) { return PyLayout{self.part.layout()}; },
          "The layout of the part, of Q columns.")
      .def_prop_ro(
          "is_whole", [](const PyRowPart& self) { return self.part.is_whole(); },
          "Whether the part is the whole.")
      .def(
          "of",
          [](const PyRowPart& self, const PyRows& rows) {
            const Rows part = self.part.of(self.whole_rows("part.of", rows));
            return PyRows{part, self.part.is_whole() ? rows.time : nullptr};
          },
          nb::arg("rows"), "The part [C, Q] of rows [C, P]; the rows themselves where it is all.")
      .def(
          "put",
          [](const PyRowPart& self, const PyRows& rows, const PyRows& part) {
            const Rows to = self.whole_rows("part.put", rows);
            self.part.put_(
                to, apart("part.put", self.part_rows("part.put", part, to, /*or_one=*/true), to));
          },
          nb::arg("rows"), nb::arg("part"),
          "Sets the columns of rows [C, P] to a part [C, Q] or [1, Q], in place.")
      .def(
          "add_two",
          [](const PyRowPart& self, const PyRows& to, const PyRows& from, nb::handle fa,
             const PyRows& a, nb::handle fb, const PyRows& b) {
            const char* verb = "part.add_two";
            const Rows sum = self.whole_rows(verb, to);
            self.part.add_two(sum,
                              apart(verb, {wanted_like(verb, from, to).values, sum.layout}, sum),
                              to_numbers_of_rows(verb, fa, sum.count()),
                              apart(verb, self.part_rows(verb, a, sum), sum),
                              to_numbers_of_rows(verb, fb, sum.count()),
                              apart(verb, self.part_rows(verb, b, sum), sum));
          },
          nb::arg("to"), nb::arg("source"), nb::arg("factors_a"), nb::arg("a"),
          nb::arg("factors_b"), nb::arg("b"),
          "to = source + factors_a a + factors_b b on the part's columns, row by row in one "
          "pass; the other columns of `to` become those of `source`.");
}

/// Edges' rows like others.
EdgeRows like(const PyEdgeRows& others, const char* verb, const PyEdgeRows& edges) {
  return {wanted_like(verb, {edges.edges.rows}, {others.edges.rows}), edges.edges.first};
}

void bind_edge_rows(nb::module_& core) {
  nb::class_<PyEdgeRows>(
      core, "EdgeRows",
      "The models of the edges that this rank hosts or shares, [E, P]; ranks of one edge hold the "
      "same row.")
      .def_prop_ro(
          "rows", [](const PyEdgeRows& self) { return PyRows{self.edges.rows}; },
          "The rows [E, P], in the same memory.")
      .def_prop_ro(
          "first", [](const PyEdgeRows& self) { return self.edges.first; },
          "The number of the first edge.")
      .def("__len__", [](const PyEdgeRows& self) { return self.edges.count(); })
      .def(
          "of",
          [](const PyEdgeRows& self, std::int64_t edge) {
            const std::int64_t place = edge - self.edges.first;
            if (place < 0 || place >= self.edges.count()) {
              throw nb::index_error(concat("edge ", edge, " is not one of this rank").c_str());
            }
            return PyRows{self.edges.of(edge)};
          },
          nb::arg("edge"), "The row of one of these edges, [1, P], in the same memory.")
      .def(
          "clone", [](const PyEdgeRows& self) { return PyEdgeRows{self.edges.clone()}; },
          "A copy in memory of its own.")
      .def(
          "__add__",
          [](const PyEdgeRows& a, const PyEdgeRows& b) {
            return PyEdgeRows{a.edges + like(a, "edges + edges", b)};
          },
          nb::is_operator())
      .def(
          "__sub__",
          [](const PyEdgeRows& a, const PyEdgeRows& b) {
            return PyEdgeRows{a.edges - like(a, "edges - edges", b)};
          },
          nb::is_operator())
      .def(
          "__sub__",
          [](const PyEdgeRows& a, const PyRows& b) {
            const Rows one = wanted("edges - rows", b, 1, a.edges.rows.layout);
            return PyEdgeRows{EdgeRows{a.edges.rows - one, a.edges.first}};
          },
          nb::is_operator())
      .def(
          "__iadd__",
          [](nb::object self, const PyEdgeRows& b) {
            auto& a = nb::cast<PyEdgeRows&>(self);
            a.edges += like(a, "edges += edges", b);
            return self;
          },
          nb::is_operator(), nb::sig("def __iadd__(self, arg: EdgeRows, /) -> EdgeRows"))
      .def("__repr__", [](const PyEdgeRows& self) {
        return concat("<fedhpc.EdgeRows ", shape_text(self.edges.rows.values), " from edge ",
                      self.edges.first, ">");
      });
}

}  // namespace

void bind_parts(nb::module_& core) {
  bind_numbers(core);
  bind_part(core);
  bind_edge_rows(core);
  nb::class_<RandomColumns>(
      core, "RandomColumns",
      "Columns chosen at random for every client, round and direction: max(1, round(fraction d)) "
      "of the d trainable ones; buffers always. Only their numbers and a seed travel.")
      .def(
          "__init__",
          [](RandomColumns* self, std::uint64_t seed, double fraction, nb::handle layout) {
            if (!(fraction > 0 && fraction <= 1)) {
              refuse("RandomColumns", "a fraction above 0 and at most 1", concat(fraction));
            }
            const LayoutPtr of_rows = to_layout(layout);
            if (of_rows->count(Tag::Trainable) == 0) {
              refuse("RandomColumns", "a layout with trainable columns", "one without");
            }
            new (self) RandomColumns(seed, fraction, of_rows);
          },
          nb::arg("seed"), nb::arg("fraction"), nb::arg("layout"))
      .def_prop_ro("inverse_fraction", &RandomColumns::inverse_fraction,
                   "d / m: a travelling number times this stands also for the others.");
}

}  // namespace fedhpc::python
