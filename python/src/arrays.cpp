// Arrays of Python and tensors of the engine; names of columns.

#include <algorithm>
#include <cmath>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/core/options.hpp"

#include "rows.hpp"

namespace fedhpc::python {

std::string shape_text(std::int64_t count, std::int64_t columns) {
  return concat("[", count, ", ", columns, "]");
}

std::string shape_text(const Tensor& values) {
  std::vector<std::string> sizes;
  for (const std::int64_t size : values.sizes()) sizes.push_back(std::to_string(size));
  return "[" + join(sizes) + "]";
}

void refuse(const std::string& verb, const std::string& wanted, const std::string& got) {
  throw nb::value_error(concat(verb, " wants ", wanted, ", got ", got).c_str());
}

namespace {

const RunRows*& current_run() {
  static const RunRows* run = nullptr;  // the interpreter's lock guards it
  return run;
}

const char* type_name(at::ScalarType type) { return type == at::kDouble ? "float64" : "float32"; }

}  // namespace

const RunRows* run_in_hand() { return current_run(); }

const RunRows& the_run() {
  if (const RunRows* run = run_in_hand()) return *run;
  throw std::runtime_error("this can be used only while a verb of a method runs");
}

RunInHand::RunInHand(const RunRows& run) : before_(current_run()) { current_run() = &run; }
RunInHand::~RunInHand() { current_run() = before_; }

bool same_fields(const LayoutPtr& a, const LayoutPtr& b) {
  return a == b ||
         (a->size() == b->size() &&
          std::ranges::equal(a->fields(), b->fields(), [](const Field& x, const Field& y) {
            return x.name == y.name && x.shape == y.shape && x.tags == y.tags;
          }));
}

Rows wanted(const std::string& verb, const PyRows& rows, const Wanted& want) {
  const Rows& got = rows.get();
  const LayoutPtr& layout = want.layout ? want.layout : got.layout;
  const std::int64_t count = want.count < 0 ? got.count() : want.count;
  const bool counts = got.count() == count || (want.or_one && got.count() == 1);
  const auto shapes = [&] {
    return "rows " + shape_text(count, layout->size()) +
           (want.or_one && count != 1 ? " or " + shape_text(1, layout->size()) : "");
  };
  if (!counts || got.layout->size() != layout->size()) {
    refuse(verb, shapes() + want.of, shape_text(got.values));
  }
  if (!same_fields(got.layout, layout)) {
    refuse(verb, shapes() + (want.of.empty() ? " of its layout" : want.of),
           shape_text(got.values) + " of another layout");
  }
  const RunRows* run = run_in_hand();
  if (want.numbers || run != nullptr) {
    const at::TensorOptions& numbers = want.numbers ? *want.numbers : run->numbers;
    const at::ScalarType type = c10::typeMetaToScalarType(numbers.dtype());
    if (got.values.scalar_type() != type) {
      const std::string name = type_name(type);
      refuse(
          verb, name + " rows",
          concat(type_name(got.values.scalar_type()),
                 "; rows.like(values) or fedhpc.Rows(layout, values, '", name, "') gives those"));
    }
    if (got.values.device() != numbers.device()) {
      const bool away = numbers.device().is_cuda();
      refuse(verb, away ? "rows on the GPU" : "rows in host memory",
             concat(away ? "rows in host memory" : "rows on a GPU",
                    "; rows.like(values) of rows of the run gives those"));
    }
  }
  return {got.values, layout};
}

Rows wanted(const std::string& verb, const PyRows& rows, std::int64_t count,
            const LayoutPtr& layout) {
  return wanted(verb, rows, {.count = count, .layout = layout});
}

Rows wanted_or_one(const std::string& verb, const PyRows& rows, std::int64_t count,
                   const LayoutPtr& layout) {
  return wanted(verb, rows, {.count = count, .layout = layout, .or_one = true});
}

Rows wanted_models(const std::string& verb, const PyRows& rows, std::int64_t count, bool or_one) {
  return wanted(
      verb, rows,
      {.count = count, .layout = the_run().model, .or_one = or_one, .of = " of the model"});
}

Rows wanted_like(const std::string& verb, const PyRows& rows, const PyRows& others, bool or_one) {
  const Rows& like = others.get();
  return wanted(verb, rows,
                {.count = like.count(),
                 .layout = like.layout,
                 .or_one = or_one,
                 .numbers = like.values.options()});
}

Rows apart(const std::string& verb, const Rows& from, const Rows& to) {
  const Tensor& a = from.values;
  const Tensor& b = to.values;
  const bool same = a.const_data_ptr() == b.const_data_ptr() && a.size(0) == b.size(0);
  const auto end = [](const Tensor& rows) { return rows.storage_offset() + rows.numel(); };
  if (!same && a.is_alias_of(b) && a.storage_offset() < end(b) && b.storage_offset() < end(a)) {
    refuse(verb, "rows that are the same or lie apart", "some that overlap; clone() keeps a copy");
  }
  return from;
}

EdgeRows wanted_edges(const std::string& verb, const PyEdgeRows& edges) {
  return {wanted_models(verb, {edges.edges.rows}, edges.edges.count()), edges.edges.first};
}

namespace {

nb::dlpack::dtype dtype_of(const Tensor& values) {
  switch (values.scalar_type()) {
    case at::kFloat:
      return nb::dtype<float>();
    case at::kDouble:
      return nb::dtype<double>();
    case at::kLong:
      return nb::dtype<std::int64_t>();
    case at::kBool:
      return nb::dtype<bool>();
    default:
      throw nb::type_error("an array of float32, float64, int64 or bool is expected");
  }
}

/// An array of Python over a tensor's memory, which it keeps.
template <typename Array>
nb::object array_over(const Tensor& values) {
  auto owner = std::make_unique<Tensor>(values);
  void* data = values.data_ptr();
  const nb::capsule keeper(owner.get(),
                           [](void* tensor) noexcept { delete static_cast<Tensor*>(tensor); });
  owner.release();
  const bool away = on_device(values);
  const std::vector<std::size_t> shape(values.sizes().begin(), values.sizes().end());
  return nb::cast(Array(data, shape.size(), shape.data(), keeper, values.strides().data(),
                        dtype_of(values), away ? nb::device::cuda::value : nb::device::cpu::value,
                        away ? values.get_device() : 0));
}

}  // namespace

nb::object to_dlpack(const Tensor& values) {
  return array_over<nb::ndarray<nb::array_api>>(values);
}

NumpyArray to_numpy(const Tensor& values, bool writable) {
  const bool away = on_device(values);
  const Tensor here = away ? on_host(values) : values;
  if (writable && !away) return nb::borrow<NumpyArray>(array_over<nb::ndarray<nb::numpy>>(here));
  return nb::borrow<NumpyArray>(array_over<nb::ndarray<nb::numpy, nb::ro>>(here));
}

namespace {

/// The memory of an array that has one dimension, contiguous.
class Contents {
 public:
  explicit Contents(nb::handle array) {
    if (PyObject_CheckBuffer(array.ptr()) == 0) return;
    there_ = PyObject_GetBuffer(array.ptr(), &buffer_, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) == 0;
    if (!there_) PyErr_Clear();
  }
  ~Contents() {
    if (there_) PyBuffer_Release(&buffer_);
  }
  Contents(const Contents&) = delete;
  Contents& operator=(const Contents&) = delete;

  /// Its numbers, if they are of this type; "d" is float64, "l" and "q" are int64.
  template <typename T>
  std::optional<std::span<T>> of(std::string_view formats) const {
    const bool fits = there_ && buffer_.ndim == 1 && buffer_.itemsize == sizeof(T) &&
                      buffer_.format[1] == 0 && formats.find(buffer_.format[0]) != formats.npos;
    if (!fits) return std::nullopt;
    return std::span<T>(static_cast<T*>(buffer_.buf),
                        static_cast<std::size_t>(buffer_.len) / sizeof(T));
  }

 private:
  Py_buffer buffer_{};
  bool there_ = false;
};

constexpr std::string_view kFloat64 = "d";
constexpr std::string_view kInt64 = "lq";

/// numpy.NAME, looked up once: every block asks for its weights.
nb::handle of_numpy(const char* name, PyObject*& kept) {
  if (kept == nullptr) {
    kept = nb::object(nb::module_::import_("numpy").attr(name)).release().ptr();
  }
  return kept;
}

template <typename T>
NumpyArray copied(std::span<const T> values, const char* type, std::string_view formats) {
  static PyObject* empty = nullptr;
  static PyObject* dtype = nullptr;
  const nb::object array =
      of_numpy("empty", empty)(static_cast<std::int64_t>(values.size()), of_numpy(type, dtype));
  const Contents contents(array);
  std::ranges::copy(values, contents.of<T>(formats)->begin());
  return nb::borrow<NumpyArray>(array);
}

/// Throws TypeError for an array with a mask, whose hidden numbers would be taken for others.
void require_unmasked(const std::string& verb, nb::handle value) {
  static PyObject* masked = nullptr;
  if (masked == nullptr) {
    masked = nb::object(nb::module_::import_("numpy.ma").attr("MaskedArray")).release().ptr();
  }
  if (!nb::isinstance(value, masked)) return;
  throw nb::type_error(
      concat(verb, " wants an array without a mask; array.filled(number) gives one").c_str());
}

/// Throws TypeError for complex numbers, of which the real part would be taken.
void require_real(const std::string& verb, nb::handle value) {
  static PyObject* is_complex = nullptr;
  try {
    if (!nb::cast<bool>(of_numpy("iscomplexobj", is_complex)(value))) return;
  } catch (const nb::python_error&) {
    return;  // lists in lists, which are not numbers at all
  }
  throw nb::type_error(concat(verb, " wants real numbers, got complex ones").c_str());
}

using AnyArray = nb::ndarray<nb::ro, nb::device::cpu>;

at::ScalarType type_of(const std::string& verb, nb::dlpack::dtype dtype) {
  if (dtype == nb::dtype<float>()) return at::kFloat;
  if (dtype == nb::dtype<double>()) return at::kDouble;
  if (dtype == nb::dtype<std::int64_t>()) return at::kLong;
  if (dtype == nb::dtype<bool>()) return at::kBool;
  // Of DLPack's codes.
  constexpr const char* kKinds[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
  const char* kind = dtype.code < std::size(kKinds) ? kKinds[dtype.code] : "other";
  throw nb::type_error(concat(verb, " wants an array of float32, float64, int64 or bool, got ",
                              kind, static_cast<int>(dtype.bits))
                           .c_str());
}

}  // namespace

NumpyArray to_numpy(std::span<const double> values) { return copied(values, "float64", kFloat64); }
NumpyArray to_numpy(std::span<const std::int64_t> values) {
  return copied(values, "int64", kInt64);
}

Tensor to_tensor(const std::string& verb, nb::handle value) {
  PyRows* rows = nullptr;
  if (nb::try_cast(value, rows) && rows != nullptr) return on_host(rows->get().values).clone();
  require_unmasked(verb, value);
  AnyArray array;
  if (!nb::try_cast(value, array, /*convert=*/false)) {
    const nb::object made = nb::module_::import_("numpy").attr("asarray")(value);
    if (!nb::try_cast(made, array, /*convert=*/false)) {
      const nb::str type(nb::handle(nb::object(made.attr("dtype"))));
      throw nb::type_error(concat(verb,
                                  " wants an array of float32, float64, int64 or bool in host "
                                  "memory, got numbers of type ",
                                  type.c_str())
                               .c_str());
    }
  }
  for (std::size_t i = 0; i < array.ndim(); ++i) {
    if (array.stride(i) >= 0) continue;
    // Torch ends the process for an array that goes backwards.
    const nb::module_ numpy = nb::module_::import_("numpy");
    const nb::object forwards = numpy.attr("ascontiguousarray")(numpy.attr("asarray")(value));
    if (!nb::try_cast(forwards, array, /*convert=*/false)) {
      throw nb::type_error(concat(verb, " wants an array in host memory").c_str());
    }
    break;
  }
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  for (std::size_t i = 0; i < array.ndim(); ++i) {
    sizes.push_back(static_cast<std::int64_t>(array.shape(i)));
    strides.push_back(array.stride(i));
  }
  const at::ScalarType type = type_of(verb, array.dtype());
  const Tensor copy = at::empty(sizes, type);
  if (copy.numel() == 0) return copy;
  // Torch takes no memory that cannot be written; this is read alone.
  copy.copy_(at::from_blob(const_cast<void*>(array.data()), sizes, strides, type));
  return copy;
}

Tensor to_matrix(const std::string& verb, nb::handle array, std::int64_t rows,
                 std::int64_t columns) {
  const Tensor matrix = to_tensor(verb, array).to(at::kDouble);
  const auto fits = [](std::int64_t wanted, std::int64_t got) {
    return wanted < 0 || wanted == got;
  };
  if (matrix.dim() != 2 || !fits(rows, matrix.size(0)) || !fits(columns, matrix.size(1))) {
    const auto text = [](std::int64_t n) { return n < 0 ? std::string("any") : concat(n); };
    refuse(verb, concat("an array [", text(rows), ", ", text(columns), "]"), shape_text(matrix));
  }
  return matrix;
}

std::vector<double> to_numbers(const std::string& verb, nb::handle values) {
  RowNumbers* numbers = nullptr;
  if (nb::try_cast(values, numbers) && numbers != nullptr) return numbers->values();
  require_unmasked(verb, values);
  const Contents contents(values);
  if (const auto here = contents.of<const double>(kFloat64)) {
    return {here->begin(), here->end()};
  }
  require_real(verb, values);
  std::vector<double> list;
  if (nb::try_cast(values, list)) return list;
  if (nb::hasattr(values, "__array__")) {  // one of torch
    const nb::object made = nb::module_::import_("numpy").attr("asarray")(values);
    if (nb::try_cast(made, list)) return list;
  }
  std::string wanted = concat(verb, " wants a list or an array [C] of numbers");
  if (nb::hasattr(values, "shape")) {
    const nb::str shape(nb::handle(nb::object(values.attr("shape"))));
    wanted += concat(", got one of shape ", shape.c_str());
  }
  throw nb::type_error(wanted.c_str());
}

std::vector<double> to_numbers(const std::string& verb, nb::handle values, std::int64_t count) {
  std::vector<double> numbers = to_numbers(verb, values);
  if (static_cast<std::int64_t>(numbers.size()) != count) {
    refuse(verb, concat(count, count == 1 ? " number" : " numbers"),
           std::to_string(numbers.size()));
  }
  return numbers;
}

std::vector<double> to_weights(const std::string& verb, nb::handle values, std::int64_t count) {
  std::vector<double> weights = to_numbers(verb, values, count);
  for (const double weight : weights) {
    if (!std::isfinite(weight)) refuse(verb, "finite weights", concat(weight));
  }
  return weights;
}

double to_number(const std::string& what, nb::handle value) {
  double number = 0;
  require_real(what, value);
  if (nb::try_cast(value, number)) return number;
  throw nb::type_error(
      concat(what, " is a number, and not a ", nb::type_name(value.type()).c_str()).c_str());
}

std::variant<double, RowNumbers> to_factor(const std::string& verb, nb::handle value,
                                           std::int64_t count) {
  const Py_ssize_t length = PyObject_Size(value.ptr());
  if (length < 0) {  // no list, nor an array of at least one dimension
    PyErr_Clear();
    return to_number(verb + "'s factor", value);
  }
  RowNumbers* numbers = nullptr;
  if (!nb::try_cast(value, numbers) || numbers == nullptr) {
    if (nb::isinstance<PyRows>(value)) {
      throw nb::type_error(concat(verb, " wants a number, or one of each row, got Rows").c_str());
    }
    return RowNumbers(to_numbers(verb, value, count));
  }
  if (numbers->count() != count) {
    refuse(verb, concat(count, count == 1 ? " number" : " numbers"), concat(numbers->count()));
  }
  return *numbers;
}

void require_not_negative(const std::string& verb, const char* name, double number) {
  if (!(number >= 0 && std::isfinite(number))) {
    refuse(verb, concat(name, " of at least 0"), concat(number));
  }
}

std::vector<std::int64_t> to_ids(const std::string& verb, nb::handle values) {
  const Contents contents(values);
  if (const auto here = contents.of<const std::int64_t>(kInt64)) {
    return {here->begin(), here->end()};
  }
  std::vector<std::int64_t> list;
  const bool sequence = nb::isinstance<nb::list>(values) || nb::isinstance<nb::tuple>(values);
  const auto is_bool = [](nb::handle one) { return PyBool_Check(one.ptr()) != 0; };
  const bool truths = sequence && std::any_of(values.begin(), values.end(), is_bool);
  if (!truths && nb::try_cast(values, list)) return list;
  throw nb::type_error(concat(verb, " wants a list or an array of whole numbers",
                              truths ? ", and not of truth values" : "")
                           .c_str());
}

void require_once(const std::string& verb, const char* one, const std::vector<std::int64_t>& ids) {
  std::vector<std::int64_t> sorted = ids;
  std::ranges::sort(sorted);
  const auto twice = std::ranges::adjacent_find(sorted);
  if (twice != sorted.end()) refuse(verb, concat("each ", one, " once"), concat(*twice, " twice"));
}

Tag to_tag(const std::string& name, const char* and_more) {
  if (name == "trainable") return Tag::Trainable;
  if (name == "buffer") return Tag::Buffer;
  if (name == "head") return Tag::Head;
  if (name == "norm") return Tag::Norm;
  if (name == "uncompressed") return Tag::Uncompressed;
  if (name == "bias") return Tag::Bias;
  if (name == "all") return Tag::None;
  throw nb::value_error(concat("there are no columns '", name,
                               "' here; kinds of columns are trainable, buffer, head, norm, bias, "
                               "uncompressed, ",
                               and_more, "and all")
                            .c_str());
}

Columns to_columns(nb::handle names) {
  Columns columns;
  if (names.is_none()) return columns;
  std::string text;
  if (!nb::try_cast(names, text)) {
    throw nb::type_error(concat("columns are a name such as 'head' or 'trainable', or None, and "
                                "not a ",
                                nb::type_name(names.type()).c_str())
                             .c_str());
  }
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (word == "body") word = "-head";
    const bool out = word.starts_with('-');
    Tag& tags = out ? columns.without : columns.with;
    tags = tags | to_tag(out ? word.substr(1) : word, "body (all but the head) ");
  }
  return columns;
}

ColumnRanges ranges_of(const Layout& layout, nb::handle names) {
  const Columns columns = to_columns(names);
  ColumnRanges ranges;
  for (const Field& field : layout.fields()) {
    if (!columns.hold(field.tags)) continue;
    if (!ranges.empty() && ranges.back().last == field.offset) {
      ranges.back().last += field.size;
    } else {
      ranges.push_back({field.offset, field.offset + field.size});
    }
  }
  return ranges;
}

LayoutPtr to_layout(nb::handle value) {
  PyLayout* layout = nullptr;
  if (nb::try_cast(value, layout) && layout != nullptr) return layout->layout;
  PyRows* rows = nullptr;
  if (nb::try_cast(value, rows) && rows != nullptr) return rows->rows.layout;
  throw nb::type_error("a Layout is expected, or Rows that have it");
}

}  // namespace fedhpc::python
