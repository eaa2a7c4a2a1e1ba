// Rows and their layouts.

#include <algorithm>
#include <nanobind/ndarray.h>
#include <nanobind/operators.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <optional>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/core/options.hpp"
#include "fedhpc/models/row_measures.hpp"

#include "bindings.hpp"
#include "training.hpp"

namespace fedhpc::python {

namespace {

nb::tuple tuple_of(const std::vector<std::int64_t>& values) {
  nb::list list;
  for (const std::int64_t value : values) list.append(value);
  return nb::tuple(list);
}

nb::tuple tags_of(const Field& field) {
  nb::list names;
  for (const char* name : {"trainable", "buffer", "head", "norm", "uncompressed", "bias"}) {
    if (has(field.tags, to_tag(name))) names.append(name);
  }
  return nb::tuple(names);
}

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
nb::object exported(const PyRows& rows, const Tensor& part) {
  return rows.time ? to_numpy(part.clone(), /*writable=*/false) : to_numpy(part);
}

std::int64_t place_of(const Rows& rows, std::int64_t place) {
  const std::int64_t counted = place < 0 ? place + rows.count() : place;
  if (counted < 0 || counted >= rows.count()) {
    throw nb::index_error(concat("row ", place, " of ", rows.count()).c_str());
  }
  return counted;
}

/// The places that an index names.
std::vector<std::int64_t> places_of(const Rows& rows, nb::handle index) {
  std::vector<std::int64_t> places;
  if (nb::isinstance<nb::slice>(index)) {
    const auto [start, stop, step, length] =
        nb::cast<nb::slice>(index).compute(static_cast<std::size_t>(rows.count()));
    for (std::size_t i = 0; i < length; ++i) {
      places.push_back(static_cast<std::int64_t>(start) +
                       static_cast<std::int64_t>(i) * static_cast<std::int64_t>(step));
    }
  } else if (nb::isinstance<nb::int_>(index)) {
    places.push_back(place_of(rows, nb::cast<std::int64_t>(index)));
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
    field.copy_(to_tensor("rows[name] = array", value));
    return;
  }
  const std::vector<std::int64_t> places = places_of(rows.get(), index);
  const auto& given = nb::cast<const PyRows&>(value);
  rows.get().put_(places, wanted("rows[places] = rows", given,
                                 static_cast<std::int64_t>(places.size()), rows.rows.layout));
}

/// Rows of this layout and type from an array [C, P].
PyRows made(const std::string& verb, const LayoutPtr& layout,
            const std::optional<at::TensorOptions>& options, nb::handle values) {
  Tensor array = to_tensor(verb, values);
  const bool real = array.scalar_type() == at::kFloat || array.scalar_type() == at::kDouble;
  if (!real) throw nb::type_error(concat(verb, " wants an array of float32 or float64").c_str());
  if (array.dim() != 2 || array.size(1) != layout->size()) {
    refuse(verb, concat("an array [C, ", layout->size(), "]"), shape_text(array));
  }
  if (options) array = array.to(*options);
  return {{array, layout}};
}

nb::object dlpack_of(const PyRows& rows) {
  const Tensor values = rows.time ? rows.get().values.clone() : rows.rows.values;
  auto owner = std::make_unique<Tensor>(values);
  void* data = values.data_ptr();
  const nb::capsule keeper(owner.get(),
                           [](void* tensor) noexcept { delete static_cast<Tensor*>(tensor); });
  owner.release();
  const std::vector<std::size_t> shape(values.sizes().begin(), values.sizes().end());
  const auto dtype = values.scalar_type() == at::kDouble ? nb::dtype<double>() : nb::dtype<float>();
  return nb::cast(nb::ndarray<nb::array_api>(
      data, shape.size(), shape.data(), keeper, values.strides().data(), dtype,
      on_device(values) ? nb::device::cuda::value : nb::device::cpu::value,
      on_device(values) ? values.get_device() : 0));
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

void bind_layout(nb::module_& core) {
  nb::class_<Field>(core, "Field", "One parameter or buffer of a model, with its columns in a row.")
      .def_ro("name", &Field::name, "PyTorch's name, e.g. 'fc1.weight'.")
      .def_prop_ro(
          "shape", [](const Field& field) { return tuple_of(field.shape); },
          "PyTorch's shape, e.g. (out, in).")
      .def_ro("offset", &Field::offset, "The first column.")
      .def_ro("size", &Field::size, "The number of columns.")
      .def_ro("fan_in", &Field::fan_in, "The inputs of one output unit.")
      .def_prop_ro("tags", &tags_of,
                   "Its kinds: trainable, buffer, head, norm, bias, uncompressed.")
      .def("__repr__", [](const Field& field) {
        return concat("<fedhpc.Field '", field.name, "', columns ", field.offset, " to ",
                      field.offset + field.size - 1, ">");
      });
  nb::class_<PyLayout>(core, "Layout", "The names of the columns of rows, in PyTorch's order.")
      .def(
          "__init__",
          [](PyLayout* self,
             const std::vector<std::pair<std::string, std::vector<std::int64_t>>>& fields) {
            auto layout = std::make_shared<Layout>();
            for (const auto& [name, shape] : fields) {
              layout->add(name, shape, shape.empty() ? 1 : shape.back(), Tag::Trainable);
            }
            new (self) PyLayout{std::move(layout)};
          },
          nb::arg("fields"), "A layout of trainable fields from a list of (name, shape).")
      .def_prop_ro(
          "fields", [](const PyLayout& self) { return self.layout->fields(); },
          "Its fields, a list of Field.")
      .def_prop_ro(
          "size", [](const PyLayout& self) { return self.layout->size(); },
          "P, the number of columns.")
      .def(
          "count",
          [](const PyLayout& self, nb::handle columns) {
            std::int64_t count = 0;
            for (const Range& range : ranges_of(*self.layout, columns)) count += range.size();
            return count;
          },
          nb::arg("columns") = "trainable", "Counts the columns of these kinds.")
      .def(
          "__getitem__",
          [](const PyLayout& self, const std::string& name) {
            if (!self.layout->contains(name)) throw nb::key_error(name.c_str());
            return self.layout->field(name);
          },
          nb::arg("name"), "The field of this name; KeyError without one.")
      .def("__contains__", [](const PyLayout& self,
                              const std::string& name) { return self.layout->contains(name); })
      .def("__eq__",
           [](const PyLayout& self, nb::handle other) {
             PyLayout* layout = nullptr;
             return nb::try_cast(other, layout) && layout != nullptr &&
                    layout->layout == self.layout;
           })
      .def("__hash__", [](const PyLayout& self) { return std::hash<LayoutPtr>{}(self.layout); })
      .def("__repr__", [](const PyLayout& self) {
        return concat("<fedhpc.Layout of ", self.layout->fields().size(), " fields, ",
                      self.layout->size(), " columns>");
      });
}

void bind_memory(nb::class_<PyRows>& rows) {
  rows.def(
          "__init__",
          [](PyRows* self, nb::handle layout, nb::handle values) {
            new (self) PyRows(made("Rows", to_layout(layout), {}, values));
          },
          nb::arg("layout"), nb::arg("values"),
          "Rows of a layout with a copy of an array [C, P] of float32 or float64.")
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
            return PyRows{self.rows.replicate(count)};
          },
          nb::arg("count"), "`count` copies of a single row [1, P], in memory of their own.")
      .def_prop_ro(
          "values", [](const PyRows& self) { return exported(self, self.get().values); },
          "The numbers as a numpy array [C, P] over the same memory. Where the engine "
          "uses that again, or rows lie on a GPU, it is a copy that cannot be written.")
      .def(
          "__array__",
          [](const PyRows& self, nb::object dtype, nb::object /*copy*/) {
            nb::object array = exported(self, self.get().values);
            return dtype.is_none() ? array : array.attr("astype")(dtype);
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

void bind_rows(nb::module_& core) {
  bind_layout(core);
  nb::class_<PyRows> rows(
      core, "Rows",
      "A matrix [C, P] of the run's type (float32 or float64) whose columns a Layout names: a "
      "model per row.\n\n+, -, * and / give new rows with the bits of a method in C++; +=, -= and "
      "*= work in place, and views (rows[1:3]) share memory. A single row [1, P] stands for all. "
      "`values` is a numpy array over the same memory.");
  rows.attr("__array_ufunc__") = nb::none();  // numpy leaves number * rows to the rows
  bind_memory(rows);
  bind_arithmetic(rows);
  bind_verbs(rows);
  bind_parts(core);
}

}  // namespace fedhpc::python
