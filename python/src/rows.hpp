#pragma once

#include <cstdint>
#include <nanobind/nanobind.h>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <ATen/core/TensorBody.h>

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
  Rows owned() const { return owned(get()); }
  /// The same of what wanted() has made of these.
  Rows owned(const Rows& here) const { return time ? here.clone() : here; }
};

/// The run whose method is being called: what its rows are made of.
struct RunRows {
  LayoutPtr model;
  LayoutPtr factors = {};     // null: weights in full
  at::TensorOptions numbers;  // type and device
  bool own_buffers = false;   // batch norm's statistics stay with clients
};
/// Null outside of a method's verbs.
const RunRows* run_in_hand();
/// The same; throws RuntimeError where it is null, as for a verb of something kept from a run.
const RunRows& the_run();
/// Has a run in hand while Python code of its method is called.
class RunInHand {
 public:
  explicit RunInHand(const RunRows& run);
  ~RunInHand();
  RunInHand(const RunInHand&) = delete;
  RunInHand& operator=(const RunInHand&) = delete;

 private:
  const RunRows* before_;
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

/// Whether layouts name the same columns.
bool same_fields(const LayoutPtr& a, const LayoutPtr& b);

/// The rows that a verb takes.
struct Wanted {
  std::int64_t count = -1;                        // -1: any
  LayoutPtr layout = {};                          // null: any
  bool or_one = false;                            // or a single row
  std::string of = {};                            // the layout's name in refusals, " of the model"
  std::optional<at::TensorOptions> numbers = {};  // type and device; none: those of the run
};
/// Returns the rows of a verb's argument, in the same memory and with the very layout wanted;
/// throws ValueError for other rows.
Rows wanted(const std::string& verb, const PyRows& rows, const Wanted& want);
Rows wanted(const std::string& verb, const PyRows& rows, std::int64_t count,
            const LayoutPtr& layout = nullptr);
/// The same of `count` rows or a single one.
Rows wanted_or_one(const std::string& verb, const PyRows& rows, std::int64_t count,
                   const LayoutPtr& layout = nullptr);
/// The same of the run's models.
Rows wanted_models(const std::string& verb, const PyRows& rows, std::int64_t count,
                   bool or_one = false);
/// The same of rows like others: as many, of their layout, type and device.
Rows wanted_like(const std::string& verb, const PyRows& rows, const PyRows& others,
                 bool or_one = false);
/// The rows that are read, where `to` is written: the very same or other memory. Throws ValueError
/// where they overlap, row by row another: what is written would be read.
Rows apart(const std::string& verb, const Rows& from, const Rows& to);
/// Edges' rows of the run's models.
EdgeRows wanted_edges(const std::string& verb, const PyEdgeRows& edges);

/// A numpy array over the memory of a tensor, which it keeps alive.
NumpyArray to_numpy(const Tensor& values, bool writable = true);
/// An array that speaks DLPack, over the same memory, where the values lie.
nb::object to_dlpack(const Tensor& values);
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
/// As many weights as that, ValueError where one is not finite.
std::vector<double> to_weights(const std::string& verb, nb::handle values, std::int64_t count);
/// A number, or one of each row; ValueError unless there are `count`.
std::variant<double, RowNumbers> to_factor(const std::string& verb, nb::handle value,
                                           std::int64_t count);
/// A number of Python; TypeError, "WHAT is a number, and not a str".
double to_number(const std::string& what, nb::handle value);
/// Throws ValueError unless a number is finite and at least 0.
void require_not_negative(const std::string& verb, const char* name, double number);
std::vector<std::int64_t> to_ids(const std::string& verb, nb::handle values);
/// Throws ValueError where an id, of what `one` names, stands there twice.
void require_once(const std::string& verb, const char* one, const std::vector<std::int64_t>& ids);

/// "head", "trainable", "body" (all but the head), "trainable -norm", "all" or None.
Columns to_columns(nb::handle names);
/// The one kind that a name says; `and_more` are names that the caller knows beside these kinds.
Tag to_tag(const std::string& name, const char* and_more = "");
/// The columns [begin, end) of a layout that have these names.
ColumnRanges ranges_of(const Layout& layout, nb::handle names);
/// Layouts as Python gives them: a Layout, or rows that have it.
LayoutPtr to_layout(nb::handle value);

}  // namespace fedhpc::python
