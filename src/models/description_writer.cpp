#include "models/description_writer.hpp"

namespace fedhpc {

DescriptionWriter::DescriptionWriter(const Shape& shape) {
  description_.add({.op = "input", .numbers = {{"shape", {shape.begin(), shape.end()}}}});
}

DescriptionWriter::Line DescriptionWriter::add(const std::string& op, Numbers numbers,
                                               std::vector<Line> inputs) {
  return last_ = description_.add(
             {.op = op, .inputs = std::move(inputs), .numbers = std::move(numbers)});
}

DescriptionWriter::Line DescriptionWriter::add(const std::string& name, const std::string& op,
                                               Numbers numbers,
                                               const std::vector<std::string>& parameters,
                                               std::vector<Line> inputs) {
  LayerLine line{
      .op = op, .inputs = std::move(inputs), .numbers = std::move(numbers), .name = name};
  for (const std::string& what : parameters) line.parameters.push_back(concat(name, '.', what));
  return last_ = description_.add(std::move(line));
}

DescriptionWriter::Line DescriptionWriter::linear(const std::string& name, std::int64_t out,
                                                  Bias bias) {
  const Numbers numbers{{"out", {static_cast<double>(out)}}};
  return bias == Bias::Use ? add(name, "linear", numbers, {"weight", "bias"}, {last()})
                           : add(name, "linear", numbers, {"weight"}, {last()});
}

DescriptionWriter::Line DescriptionWriter::constant(const std::string& name, const Tensor& values) {
  description_.constants.insert_or_assign(name, values);
  const Numbers numbers{{"shape", {values.sizes().begin(), values.sizes().end()}}};
  return last_ = description_.add(
             {.op = "constant", .numbers = numbers, .name = name, .constant = name});
}

DescriptionWriter::Line DescriptionWriter::reshape(const Shape& shape) {
  return add("reshape", {{"shape", {shape.begin(), shape.end()}}});
}

}  // namespace fedhpc
