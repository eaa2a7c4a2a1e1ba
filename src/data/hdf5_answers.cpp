// Labels and targets of data.name = hdf5; hdf5_dataset.cpp says where they stand.

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>

#include <ATen/ops/empty.h>

#include "data/hdf5_input.hpp"
#include "data/numbers.hpp"

namespace fedhpc {

namespace {

constexpr std::int64_t kPlausibleLabels = 65536;  // in a file with fewer samples
constexpr double kLargest = 2147483647;           // label, on both sides of 0

/// The targets of a sample, the product of all dimensions but the first.
std::int64_t targets_each(const std::vector<hsize_t>& shape) {
  return static_cast<std::int64_t>(
      std::accumulate(shape.begin() + 1, shape.end(), hsize_t{1}, std::multiplies<>()));
}

/// Whether floats are whole numbers from 0.
bool all_labels(const Input& input, const std::string& name) {
  check_values<double>(input, name);
  const std::vector<double> numbers = h5::read_vector<double>(input.file, name);
  return std::all_of(numbers.begin(), numbers.end(), [](double number) {
    return number >= 0 && number <= kLargest && number == std::floor(number);
  });
}

/// What stands in y_train and y_test.
struct Form {
  bool targets = false;  // beside labels, or without any
  bool floats = false;
  std::vector<hsize_t> shape;
};

Form form_of(const Input& input, bool tested) {
  Form form{.floats = h5::holds_floats(h5::open_dataset(input.file, "y_train")),
            .shape = input.shape("y_train")};
  if (form.shape.empty()) input.fail("y_train", "found one number, expected one for each sample");
  form.targets = form.shape.size() > 1 || input.has("label_train");
  if (tested) {
    const std::vector<hsize_t> shape = input.shape("y_test");
    if (shape.empty() ||
        !std::equal(shape.begin() + 1, shape.end(), form.shape.begin() + 1, form.shape.end())) {
      input.fail("y_test", "found targets of another shape than in /y_train, expected the same");
    }
    const bool floats = h5::holds_floats(h5::open_dataset(input.file, "y_test"));
    if (form.targets && floats != form.floats && input.label_kind != LabelKind::Number) {
      input.fail("y_test", "found another kind of numbers than in /y_train, expected whole ",
                 "numbers in both or floats in both");
    }
    form.floats = form.floats && floats;
  }
  switch (input.label_kind) {
    case LabelKind::Number:
      form.targets = form.floats = true;
      break;
    case LabelKind::Class:
      if (form.targets && form.floats) {
        input.fail("y_train", "found floats as targets, expected whole numbers with ",
                   "data.label_kind = class");
      }
      break;
    case LabelKind::Auto:  // floats of one dimension may be labels
      form.targets = form.targets || (form.floats && !(all_labels(input, "y_train") &&
                                                       (!tested || all_labels(input, "y_test"))));
      break;
  }
  return form;
}

template <typename T>
void read_targets(const Input& input, const std::string& name, std::int64_t count,
                  const std::string& of, const Tensor& targets) {
  check_values<T>(input, name);
  const auto found = static_cast<std::int64_t>(input.shape(name).front());
  if (found != count) {
    input.fail(name, "found ", found, " entries, expected ", count, ", one for each of /", of);
  }
  T* values = targets.data_ptr<T>();
  h5::read_all(h5::open_dataset(input.file, name), h5::type_of<T>(), values);
  const std::int64_t each = targets.size(1);
  for (std::int64_t i = 0; i < targets.numel(); ++i) {
    if (std::abs(static_cast<double>(values[i])) <= kLargest) continue;
    if (std::is_floating_point_v<T> && std::isfinite(static_cast<double>(values[i]))) continue;
    input.fail(name, "found ", values[i], " in sample ", i / each, ", place ", i % each,
               std::is_floating_point_v<T> ? ", expected a finite number"
                                           : ", expected a whole number within 2^31");
  }
}

template <typename T>
Tensor read_all_targets(const Input& input, const Form& form, std::int64_t num_train,
                        std::int64_t num_test) {
  const std::int64_t each = targets_each(form.shape);
  if (each == 0) input.fail("y_train", "found no target of a sample, expected at least one");
  constexpr auto kType = std::is_floating_point_v<T> ? at::kDouble : at::kLong;
  Tensor targets = at::empty({num_train + num_test, each}, kType);
  read_targets<T>(input, "y_train", num_train, "x_train", targets.narrow(0, 0, num_train));
  if (num_test > 0) {
    read_targets<T>(input, "y_test", num_test, "x_test", targets.narrow(0, num_train, num_test));
  }
  return targets;
}

}  // namespace

std::vector<std::int64_t> read_counts(const Input& input, const std::string& name,
                                      std::int64_t count, const std::string& of) {
  check_values<double>(input, name);
  const std::vector<double> numbers = h5::read_vector<double>(input.file, name);
  if (static_cast<std::int64_t>(numbers.size()) != count) {
    input.fail(name, "found ", numbers.size(), " entries, expected ", count, ", one for each of /",
               of);
  }
  std::vector<std::int64_t> counts;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (!(numbers[i] >= 0 && numbers[i] <= kLargest && numbers[i] == std::floor(numbers[i]))) {
      input.fail(name, "found ", numbers[i], " at entry ", i,
                 ", expected a whole number from 0 within 2^31");
    }
    counts.push_back(static_cast<std::int64_t>(numbers[i]));
  }
  return counts;
}

namespace {

/// Labels from NAME_train and, where there are test samples, NAME_test.
std::vector<std::int64_t> read_labels(const Input& input, const std::string& name,
                                      std::int64_t num_train, std::int64_t num_test) {
  std::vector<std::int64_t> labels = read_counts(input, name + "_train", num_train, "x_train");
  if (num_test > 0) {
    const auto more = read_counts(input, name + "_test", num_test, "x_test");
    labels.insert(labels.end(), more.begin(), more.end());
  }
  // A damaged label would ask for a layer of millions of outputs.
  const auto largest = std::max_element(labels.begin(), labels.end());
  if (*largest >= std::max<std::int64_t>(std::ssize(labels), kPlausibleLabels)) {
    const std::int64_t place = largest - labels.begin();
    const bool tests = place >= num_train;
    input.fail(name + (tests ? "_test" : "_train"), "found label ", *largest, " at entry ",
               tests ? place - num_train : place, " among ", labels.size(),
               " samples, expected labels 0 to K - 1; number the classes from 0");
  }
  return labels;
}

/// The attribute `classes` of a data set, from `least` to `most`; none where it has none. A file may
/// say that there are more classes than its labels show.
std::optional<std::int64_t> said_classes(const Input& input, const std::string& name,
                                         std::int64_t least, std::int64_t most) {
  const h5::Handle dataset = h5::open_dataset(input.file, name);
  if (!h5::has_attribute(dataset, "classes")) return std::nullopt;
  std::int64_t classes = 0;
  try {
    classes = h5::read_integer_attribute(dataset, "classes");
  } catch (const Error& error) {
    input.fail(name, error.what());
  }
  if (classes < least || classes > most) {
    input.fail(name, "its attribute 'classes' is ", classes, ", expected ", least, " to ", most);
  }
  return classes;
}

/// K of labels in NAME_train.
std::int64_t classes_of(const Input& input, const std::string& name,
                        const std::vector<std::int64_t>& labels) {
  const std::int64_t least = *std::max_element(labels.begin(), labels.end()) + 1;
  return said_classes(input, name, least, std::max(least, kPlausibleLabels)).value_or(least);
}

}  // namespace

Answers read_answers(const Input& input, std::int64_t num_train, std::int64_t num_test) {
  const Form form = form_of(input, num_test > 0);
  Answers answers;
  if (!form.targets) {
    answers.labels = read_labels(input, "y", num_train, num_test);
    answers.classes = classes_of(input, "y_train", answers.labels);
    if (answers.classes < 2) {
      input.fail("y_train", "found the label 0 only, expected at least two labels");
    }
    if (input.label_kind == LabelKind::Auto) {
      check_classes(answers.labels, answers.classes, input.path);
    }
    return answers;
  }
  answers.targets = form.floats ? read_all_targets<double>(input, form, num_train, num_test)
                                : read_all_targets<std::int64_t>(input, form, num_train, num_test);
  // One of the targets may be train.ignored_label: what they hold is compared by the loss.
  if (!form.floats) {
    constexpr auto kMost = static_cast<std::int64_t>(kLargest) + 1;  // as of labels without it
    answers.target_classes = said_classes(input, "y_train", 1, kMost).value_or(0);
  }
  if (!input.has("label_train")) {
    answers.labels.assign(static_cast<std::size_t>(num_train + num_test), 0);
    return answers;
  }
  answers.labels = read_labels(input, "label", num_train, num_test);
  answers.classes = classes_of(input, "label_train", answers.labels);
  return answers;
}

}  // namespace fedhpc
