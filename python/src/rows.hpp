#pragma once

#include <cstdint>
#include <nanobind/nanobind.h>
#include <span>
#include <string>
#include <vector>

#include "fedhpc/models/layout.hpp"
#include "fedhpc/models/row_numbers.hpp"
#include "fedhpc/rounds/edge_rows.hpp"

#include "held.hpp"

namespace fedhpc::python {

namespace nb = nanobind;

/// An array of numpy, which signatures name so.
class NumpyArray : public nb::object {
  static bool is_array(PyObject* object) { return PyObject_CheckBuffer(object) != 0; }

 public:
  NB_OBJECT_DEFAULT(NumpyArray, nb::object, "numpy.ndarray", is_array)
};

/// A layout as Python has it.
struct PyLayout {
  LayoutPtr layout;
};

/// Rows as Python has them. What the engine uses again has a time; other rows own their memory.
struct PyRows {
  Rows rows;
  TimePtr time = {};

  const Rows& get() const {
    if (time) time->check();
    return rows;
  }
  /// The same rows where they own their memory, else a copy that does.
  Rows owned() const { return time ? get().clone() : rows; }
};

/// Adds arithmetic and measures to Rows.
void bind_row_verbs(nb::class_<PyRows>& rows);

/// Edges' rows as Python has them.
struct PyEdgeRows {
  EdgeRows edges;
};

/// "[12, 79510]".
std::string shape_text(std::int64_t count, std::int64_t columns);
std::string shape_text(const Tensor& values);

/// Throws ValueError, "VERB wants WANTED, got GOT".
[[noreturn]] void refuse(const std::string& verb, const std::string& wanted,
                         const std::string& got);

/// Returns the rows of a verb's argument; throws ValueError unless there are `count` of them.
/// `layout`: theirs, null: any.
const Rows& wanted(const std::string& verb, const PyRows& rows, std::int64_t count,
                   const LayoutPtr& layout = nullptr);
/// The same of `count` rows or a single one.
const Rows& wanted_or_one(const std::string& verb, const PyRows& rows, std::int64_t count,
                          const LayoutPtr& layout = nullptr);

/// A numpy array over the memory of a tensor, which it keeps alive.
NumpyArray to_numpy(const Tensor& values, bool writable = true);
/// A numpy array of these numbers, with memory of its own.
NumpyArray to_numpy(std::span<const double> values);
NumpyArray to_numpy(std::span<const std::int64_t> values);
/// A contiguous copy of an array (or a list) in host memory; throws TypeError naming the verb.
Tensor to_tensor(const std::string& verb, nb::handle array);
/// A copy of a matrix [rows, columns] float64, ValueError for another shape. -1: any number.
Tensor to_matrix(const std::string& verb, nb::handle array, std::int64_t rows,
                 std::int64_t columns);
/// Numbers of a list or an array.
std::vector<double> to_numbers(const std::string& verb, nb::handle values);
/// As many as that; ValueError otherwise.
std::vector<double> to_numbers(const std::string& verb, nb::handle values, std::int64_t count);
std::vector<std::int64_t> to_ids(const std::string& verb, nb::handle values);

/// "head", "trainable", "body" (all but the head), "trainable -norm", "all" or None.
Columns to_columns(nb::handle names);
/// The one kind that a name says.
Tag to_tag(const std::string& name);
/// The columns [begin, end) of a layout that have these names.
ColumnRanges ranges_of(const Layout& layout, nb::handle names);
/// Layouts as Python gives them: a Layout, or rows that have it.
LayoutPtr to_layout(nb::handle value);

}  // namespace fedhpc::python
