#pragma once

#include <string>
#include <utility>
#include <vector>

#include "fedhpc/models/description.hpp"

namespace fedhpc {

/// Writes the description of a built-in family, a layer at a time. Each layer takes the value of
/// the last one unless it is told otherwise.
class DescriptionWriter {
 public:
  using Numbers = std::map<std::string, std::vector<double>>;
  using Line = std::size_t;

  explicit DescriptionWriter(const Shape& shape);

  Line last() const { return last_; }
  /// The next layer takes the value of this line.
  void go_on_from(Line line) { last_ = line; }
  /// A layer without parameters.
  Line add(const std::string& op, Numbers numbers = {}) {
    return add(op, std::move(numbers), {last()});
  }
  Line add(const std::string& op, Numbers numbers, std::vector<Line> inputs);
  /// A layer whose parameters are NAME.what for each of these.
  Line add(const std::string& name, const std::string& op, Numbers numbers,
           const std::vector<std::string>& parameters, std::vector<Line> inputs);
  /// Numbers that are the same for every sample, float64.
  Line constant(const std::string& name, const Tensor& values);
  Line linear(const std::string& name, std::int64_t out, Bias bias);
  Line reshape(const Shape& shape);

  std::unique_ptr<Model> build() const { return build_model(description_, "the built-in model"); }

 private:
  ModelDescription description_;
  Line last_ = 0;
};

}  // namespace fedhpc
