// Which loss fits which targets.

#include <algorithm>
#include <cmath>
#include <string>

#include "fedhpc/core/error.hpp"
#include "fedhpc/training/loss.hpp"

namespace fedhpc {

namespace {

const char* name_of(LossKind kind) {
  switch (kind) {
    case LossKind::BinaryCrossEntropy:
      return "binary_cross_entropy";
    case LossKind::MeanSquaredError:
      return "mean_squared_error";
    default:
      return "cross_entropy";
  }
}

std::string described(const Targets& targets, std::int64_t classes) {
  if (targets.kind == Targets::Kind::Label) return concat("one label of ", classes, " a sample");
  const std::string of = targets.kind == Targets::Kind::Numbers
                             ? " real numbers a sample"
                             : concat(" whole numbers from ", targets.values.front(), " to ",
                                      targets.values.back(), " a sample");
  return concat(targets.count, of);
}

LossKind kind_for(const Targets& targets) {
  if (targets.kind == Targets::Kind::Numbers) return LossKind::MeanSquaredError;
  return targets.is_binary() ? LossKind::BinaryCrossEntropy : LossKind::CrossEntropy;
}

}  // namespace

Loss::Loss(const LossOptions& options, const Targets& targets, std::int64_t classes)
    : kind_(options.kind == LossKind::Auto ? kind_for(targets) : options.kind),
      places_(targets.count),
      sequences_(kind_ == LossKind::CrossEntropy && targets.kind != Targets::Kind::Label),
      smoothing_(options.label_smoothing),
      ignored_(options.ignored_label),
      mean_square_(targets.mean_square) {
  const auto refuse = [&](const std::string& what) {
    throw ConfigError(concat("train.loss = ", name_of(kind_), " does not fit the data, ",
                             described(targets, classes), ": ", what));
  };
  const bool numbers = targets.kind == Targets::Kind::Numbers;
  if (numbers != (kind_ == LossKind::MeanSquaredError)) {
    refuse(numbers
               ? "use mean_squared_error or auto"
               : "it needs targets that are real numbers: floats in a file, or whole numbers with "
                 "data.label_kind = number");
  }
  if (smoothing_ > 0 && kind_ != LossKind::CrossEntropy) {
    throw ConfigError(concat("train.label_smoothing = ", smoothing_, " has no say with the loss ",
                             name_of(kind_), " of these data; drop the key"));
  }
  const bool ignores = ignored_ != LossOptions{}.ignored_label;
  if (ignores && !sequences_) {
    throw ConfigError(concat("train.ignored_label = ", ignored_,
                             " is for labels of a sequence's places, which these data have not; ",
                             "drop the key"));
  }
  if (kind_ == LossKind::BinaryCrossEntropy &&
      !(targets.kind == Targets::Kind::Label ? classes == 2 : targets.is_binary())) {
    refuse("it needs targets 0 and 1");
  }
  if (kind_ != LossKind::CrossEntropy) return;
  classes_ = classes;
  if (!sequences_) return;
  classes_ = std::max<std::int64_t>(2, targets.classes);
  for (const std::int64_t value : targets.values) {
    if (value == ignored_) continue;
    if (value < 0) {
      refuse(concat("the label ", value,
                    " is below 0; number the classes from 0, or name it by train.ignored_label"));
    }
    if (targets.classes > 0 && value >= targets.classes) {
      refuse(concat("the label ", value, " is none of the ", targets.classes,
                    " classes that the data name; number them from 0"));
    }
    classes_ = std::max(classes_, value + 1);
  }
}

Outputs Loss::outputs() const { return {kind_ == LossKind::CrossEntropy ? classes_ : 1, places_}; }

Loss Loss::of_outputs(std::int64_t outputs) const {
  const bool classes = kind_ == LossKind::CrossEntropy;
  const bool fits =
      classes ? outputs % places_ == 0 && outputs >= this->outputs() : outputs == this->outputs();
  if (!fits) {
    const std::string wanted =
        classes ? concat(places_, places_ == 1 ? " place" : " places", " of ", classes_, " classes")
                : concat(places_, " values");
    throw ConfigError(concat("the model has ", outputs, " outputs a sample and the data's targets ",
                             "ask for ", this->outputs(), ", ", wanted,
                             "; give a model of that size"));
  }
  Loss loss = *this;
  if (classes) loss.classes_ = outputs / places_;
  return loss;
}

void Loss::check_shape(const Shape& outputs) const {
  if (kind_ != LossKind::CrossEntropy) return;
  Shape longer;
  std::ranges::copy_if(outputs, std::back_inserter(longer), [](auto length) { return length > 1; });
  if (longer.size() < 2 || longer.back() == classes_) return;
  std::string lengths;
  for (const std::int64_t length : outputs) {
    lengths += concat(lengths.empty() ? "" : " x ", length);
  }
  throw ConfigError(concat("the model gives ", lengths, " values a sample, and the loss reads ",
                           places_ == 1 ? "one row" : concat(places_, " rows"), " of ", classes_,
                           ": the last dimension has to be that of the classes"));
}

double Loss::of_guessing() const {
  if (kind_ == LossKind::MeanSquaredError) return mean_square_ > 0 ? mean_square_ : 1;
  const bool classes = kind_ == LossKind::CrossEntropy;
  return std::log(static_cast<double>(classes ? std::max<std::int64_t>(classes_, 2) : 2));
}

std::int64_t Loss::measures() const {
  if (kind_ == LossKind::BinaryCrossEntropy) return 4;
  return sequences_ ? 3 : 2;
}

}  // namespace fedhpc
