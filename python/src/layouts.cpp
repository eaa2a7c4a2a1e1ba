// Layouts: the names of columns.

#include <algorithm>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "fedhpc/core/options.hpp"

#include "bindings.hpp"
#include "rows.hpp"

namespace fedhpc::python {

namespace {

nb::tuple tuple_of(const std::vector<std::int64_t>& values) {
  nb::list list;
  for (const std::int64_t value : values) list.append(value);
  return nb::tuple(list);
}

std::string join_sizes(const std::vector<std::int64_t>& shape) {
  std::vector<std::string> sizes;
  for (const std::int64_t size : shape) sizes.push_back(std::to_string(size));
  return join(sizes);
}

nb::tuple tags_of(const Field& field) {
  nb::list names;
  for (const char* name : {"trainable", "buffer", "head", "norm", "uncompressed", "bias"}) {
    if (has(field.tags, to_tag(name))) names.append(name);
  }
  return nb::tuple(names);
}

}  // namespace

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
              if (name.empty() || name.find('/') != std::string::npos || layout->contains(name)) {
                refuse("Layout", "a name without '/' for each field, all different",
                       "'" + name + "'" + (layout->contains(name) ? " twice" : ""));
              }
              if (std::ranges::any_of(shape, [](std::int64_t n) { return n < 0; })) {
                refuse("Layout", "sizes from 0 on",
                       concat("'", name, "' [", join_sizes(shape), "]"));
              }
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
                    same_fields(layout->layout, self.layout);
           })
      .def("__hash__",
           [](const PyLayout& self) { return std::hash<std::int64_t>{}(self.layout->size()); })
      .def("__repr__", [](const PyLayout& self) {
        return concat("<fedhpc.Layout of ", self.layout->fields().size(), " fields, ",
                      self.layout->size(), " columns>");
      });
}

}  // namespace fedhpc::python
