// Rows and their layouts.

#include <algorithm>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <optional>

#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/core/options.hpp"

#include "bindings.hpp"
#include "training.hpp"

namespace fedhpc::python {

namespace {

/// A field's columns [C, *shape], in the same memory.
Tensor field_of(const Rows& rows, const std::string& name) {
  if (!rows.layout->contains(name)) {
    std::vector<std::string> names;
    for (const Field& field : rows.layout->fields()) names.push_back(field.name);
    throw nb::key_error(
        concat("the layout has no field '", name, "'", suggestion(nearest(name, names))).c_str());
  }
  const Field& field = rows.layout->field(name);
  std::vector<std::int64_t> shape{rows.count()};
  shape.insert(shape.end(), field.shape.begin(), field.shape.end());
  return rows.values.narrow(1, field.offset, field.size).view(shape);
}

/// What Python may keep: the same memory, or a copy of what the engine uses again.
NumpyArray exported(const PyRows& rows, const Tensor& part) {
  return rows.time ? to_numpy(part.clone(), /*writable=*/false) : to_numpy(part);
}

std::int64_t place_of(const Rows& rows, std::int64_t place) {
  const std::int64_t counted = place < 0 ? place + rows.count() : place;
  if (counted < 0 || counted >= rows.count()) {
    throw nb::index_error(concat("row ", place, " of ", rows.count()).c_str());
  }
  return counted;
}

/// What stands for a whole number, as one of numpy does; no truth value.
std::optional<std::int64_t> whole_number(nb::handle index) {
  if (PyBool_Check(index.ptr()) != 0 || PyIndex_Check(index.ptr()) == 0) return std::nullopt;
  const Py_ssize_t number = PyNumber_AsSsize_t(index.ptr(), PyExc_IndexError);
  if (number != -1 || PyErr_Occurred() == nullptr) return number;
  if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw nb::python_error();
  PyErr_Clear();  // an array of numpy
  return std::nullopt;
}

/// The places that an index names.
std::vector<std::int64_t> places_of(const Rows& rows, nb::handle index) {
  std::vector<std::int64_t> places;
  if (nb::isinstance<nb::tuple>(index)) {
    throw nb::type_error("rows[...] takes places of rows alone; rows.values[0, 1] is a number");
  }
  if (nb::isinstance<nb::slice>(index)) {
    const auto [start, stop, step, length] =
        nb::cast<nb::slice>(index).compute(static_cast<std::size_t>(rows.count()));
    for (std::size_t i = 0; i < length; ++i) {
      places.push_back(static_cast<std::int64_t>(start) +
                       static_cast<std::int64_t>(i) * static_cast<std::int64_t>(step));
    }
  } else if (const std::optional<std::int64_t> one = whole_number(index)) {
    places.push_back(place_of(rows, *one));
  } else {
    for (const std::int64_t place : to_ids("rows[...]", index)) {
      places.push_back(place_of(rows, place));
    }
  }
  return places;
}

Rows rows_at(const Rows& rows, const std::vector<std::int64_t>& places) {
  if (places.empty()) return rows.narrow(0, 0);
  return rows.at(places);
}

nb::object get_item(const PyRows& rows, nb::handle index) {
  if (nb::isinstance<nb::str>(index)) {
    return exported(rows, field_of(rows.get(), nb::cast<std::string>(index)));
  }
  return nb::cast(PyRows{rows_at(rows.get(), places_of(rows.get(), index)), rows.time});
}

void set_item(const PyRows& rows, nb::handle index, nb::handle value) {
  if (nb::isinstance<nb::str>(index)) {
    const Tensor field = field_of(rows.get(), nb::cast<std::string>(index));
    const Tensor array = to_tensor("rows[name] = array", value);
    if (!at::is_expandable_to(array.sizes(), field.sizes())) {
      refuse("rows[name] = array", "an array " + shape_text(field), shape_text(array));
    }
    field.copy_(array);
    return;
  }
  const std::vector<std::int64_t> places = places_of(rows.get(), index);
  PyRows* given = nullptr;
  if (!nb::try_cast(value, given) || given == nullptr) {
    throw nb::type_error(concat("rows[places] = rows wants Rows, got a ",
                                nb::type_name(value.type()).c_str(),
                                "; rows.like(array) makes them, and rows.values[places] = array "
                                "sets numbers")
                             .c_str());
  }
  const char* verb = "rows[places] = rows";
  require_once(verb, "place", places);
  const Rows from = wanted(verb, *given,
                           {.count = static_cast<std::int64_t>(places.size()),
                            .layout = rows.rows.layout,
                            .numbers = rows.rows.values.options()});
  if (places.empty()) return;
  rows.get().put_(places, apart(verb, from, rows_at(rows.get(), places)));
}

/// Rows of this layout and type from an array [C, P].
PyRows made(const std::string& verb, const LayoutPtr& layout,
            const std::optional<at::TensorOptions>& options, nb::handle values) {
  Tensor array = to_tensor(verb, values);
  const bool real = array.scalar_type() == at::kFloat || array.scalar_type() == at::kDouble;
  if (!real) {
    const char* got = array.scalar_type() == at::kLong ? "int64" : "bool";
    throw nb::type_error(concat(verb, " wants an array of float32 or float64, got ", got).c_str());
  }
  if (array.dim() != 2 || array.size(1) != layout->size()) {
    refuse(verb, concat("an array [C, ", layout->size(), "]"), shape_text(array));
  }
  if (options) array = array.to(*options);
  return {{array, layout}};
}

/// The type and device of new rows: those of the rows given for a layout, or of the run; `dtype`
/// is another type.
std::optional<at::TensorOptions> options_of(nb::handle layout, nb::handle dtype) {
  std::optional<at::TensorOptions> options;
  PyRows* rows = nullptr;
  if (nb::try_cast(layout, rows) && rows != nullptr) {
    options = rows->get().values.options();
  } else if (run_in_hand() != nullptr) {
    options = run_in_hand()->numbers;
  }
  if (dtype.is_none()) return options;
  const nb::object named = nb::module_::import_("numpy").attr("dtype")(dtype);
  const std::string name = nb::str(named).c_str();
  if (name != "float32" && name != "float64") {
    refuse("Rows", "a dtype float32 or float64", name);
  }
  return options.value_or(at::TensorOptions()).dtype(name == "float64" ? at::kDouble : at::kFloat);
}

nb::object dlpack_of(const PyRows& rows) {
  return to_dlpack(rows.time ? rows.get().values.clone() : rows.rows.values);
}

void bind_memory(nb::class_<PyRows>& rows) {
  rows.def(
          "__init__",
          [](PyRows* self, nb::handle layout, nb::handle values, nb::handle dtype) {
            const std::optional<at::TensorOptions> options = options_of(layout, dtype);
            new (self) PyRows(made("Rows", to_layout(layout), options, values));
          },
          nb::arg("layout"), nb::arg("values"), nb::arg("dtype") = nb::none(),
          "Rows of a layout with a copy of an array or a list [C, P] of float32 or float64. Type "
          "and device are those of the rows given as `layout`, else in a method's verbs those of "
          "the run, else the array's; dtype ('float32' or 'float64') is another type. The verbs "
          "of a run refuse rows of other types than its own.")
      .def(
          "like",
          [](const PyRows& self, nb::handle values) {
            return made("rows.like", self.rows.layout, self.get().values.options(), values);
          },
          nb::arg("values"),
          "New rows of this layout, type and device with a copy of an array [C, P]. ValueError "
          "for another shape.")
      .def(
          "zeros",
          [](const PyRows& self) {
            return PyRows{{at::zeros_like(self.get().values), self.rows.layout}};
          },
          "New rows of this shape, 0 everywhere.")
      .def(
          "clone", [](const PyRows& self) { return PyRows{self.get().clone()}; },
          "A copy in memory of its own.")
      .def(
          "copy", [](const PyRows& self) { return PyRows{self.get().clone()}; },
          "The same as clone().")
      .def("__copy__", [](const PyRows& self) { return PyRows{self.get().clone()}; })
      .def("__deepcopy__",
           [](const PyRows& self, nb::handle) { return PyRows{self.get().clone()}; })
      .def(
          "replicate",
          [](const PyRows& self, std::int64_t count) {
            if (self.get().count() != 1) {
              refuse("rows.replicate", "a single row", shape_text(self.rows.values));
            }
            if (count < 0) refuse("rows.replicate", "a count from 0 on", concat(count));
            return PyRows{self.rows.replicate(count)};
          },
          nb::arg("count"), "`count` copies of a single row [1, P], in memory of their own.")
      .def_prop_ro(
          "values", [](const PyRows& self) { return exported(self, self.get().values); },
          "The numbers as a numpy array [C, P] over the same memory. Where the engine "
          "uses that again, or rows lie on a GPU, it is a copy that cannot be written.")
      .def(
          "__array__",
          [](const PyRows& self, nb::handle dtype, nb::handle copy) {
            const bool copies = self.time || on_device(self.get().values);
            if (copies && !copy.is_none() && !nb::cast<bool>(nb::bool_(copy))) {
              throw nb::value_error(
                  "the numbers of these rows are a copy, which copy=False forbids");
            }
            nb::dict how;
            if (!dtype.is_none()) how["dtype"] = dtype;
            if (!copy.is_none()) how["copy"] = copy;
            // numpy itself knows when it has to copy, and refuses where it must not.
            return nb::module_::import_("numpy").attr(copy.is_none() ? "asarray" : "array")(
                exported(self, self.get().values), **how);
          },
          nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none())
      .def(
          "__dlpack__",
          [](const PyRows& self, nb::kwargs keywords) {
            return dlpack_of(self).attr("__dlpack__")(**keywords);
          },
          "Shares the memory with torch.from_dlpack(rows) and numpy.from_dlpack(rows); a copy "
          "of what the engine uses again.")
      .def("__dlpack_device__",
           [](const PyRows& self) { return dlpack_of(self).attr("__dlpack_device__")(); })
      .def_prop_ro(
          "layout", [](const PyRows& self) { return PyLayout{self.rows.layout}; },
          "The names of the columns.")
      .def_prop_ro(
          "shape",
          [](const PyRows& self) {
            return nb::make_tuple(self.rows.count(), self.rows.layout->size());
          },
          "(C, P): rows and columns.")
      .def(
          "fields",
          [](const PyRows& self) {
            nb::dict fields;
            for (const Field& field : self.get().layout->fields()) {
              fields[field.name.c_str()] = exported(self, field_of(self.rows, field.name));
            }
            return fields;
          },
          "Every field by name, as rows[name] gives it.")
      .def(
          "at",
          [](const PyRows& self, nb::handle places) {
            return PyRows{rows_at(self.get(), places_of(self.get(), places)), self.time};
          },
          nb::arg("places"),
          "The rows at these places: in the same memory where the places follow each other, "
          "else copies, which rows[places] = ... takes back.")
      .def("__getitem__", &get_item, nb::arg("index"),
           "rows[name] is a field as an array [C, *shape] over the same memory; rows[i], "
           "rows[a:b] and rows[places] are rows, as at() gives them.")
      .def("__setitem__", &set_item, nb::arg("index"), nb::arg("value"))
      .def("__len__", [](const PyRows& self) { return self.rows.count(); })
      .def("__repr__", [](const PyRows& self) {
        const char* type = self.rows.values.scalar_type() == at::kDouble ? "float64" : "float32";
        return concat("<fedhpc.Rows ", shape_text(self.rows.values), " ", type, ">");
      });
}

}  // namespace

void bind_rows(nb::module_& core) {
  bind_layout(core);
  nb::class_<PyRows> rows(
      core, "Rows",
      "A matrix [C, P] of the run's type (float32 or float64) whose columns a Layout names: a "
      "model per row.\n\n+, -, * and / give new rows with the bits of a method in C++; +=, -= and "
      "*= and /= work in place, and views (rows[1:3]) share memory: what works in place takes rows "
      "that are the same or lie apart. In operators, `assign` and `inner_products` a single row "
      "[1, P] stands for all. "
      "`values` is a numpy array over the same memory; == asks for the same object.");
  rows.attr("__array_ufunc__") = nb::none();  // numpy leaves number * rows to the rows
  bind_memory(rows);
  bind_row_verbs(rows);
  bind_parts(core);
}

}  // namespace fedhpc::python
