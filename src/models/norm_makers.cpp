#include <algorithm>

#include "fedhpc/models/image_layers.hpp"
#include "fedhpc/models/sample_norm.hpp"

#include "models/layer_makers.hpp"

namespace fedhpc {

namespace {

/// The only input [C, ...] as channels of one row, or of the image that it is.
ImageShape channels_of(const LineReader& line) {
  const Shape& shape = line.input();
  line.check(!shape.empty(), "its input has no dimensions");
  if (shape.size() == 3) return {shape[0], shape[1], shape[2]};
  return {shape[0], 1, values_of(shape) / shape[0]};
}

double epsilon_of(const LineReader& line) {
  const double epsilon = line.number_or("epsilon", 1e-5);
  line.check(epsilon >= 0, concat("'epsilon' is ", epsilon, "; allowed: at least 0"));
  return epsilon;
}

}  // namespace

MadeLayer make_batch_norm_layer(const LineReader& line) {
  const double momentum = line.number_or("momentum", 0.1);
  line.check(0 <= momentum && momentum <= 1,
             concat("'momentum' is ", momentum, "; allowed: from 0 to 1"));
  return {std::make_unique<BatchNorm>(line.parameters(4, 4), channels_of(line), line.then(),
                                      epsilon_of(line), momentum),
          line.input()};
}

MadeLayer make_group_norm_layer(const LineReader& line) {
  const ImageShape in = channels_of(line);
  const std::int64_t groups = line.integer("groups", 1);
  line.check(in.channels % groups == 0,
             concat("its ", in.channels, " channels do not make ", groups, " equal groups"));
  line.check(line.parameter_count() != 1, "it names 1 parameter, it needs 0 or 2");
  return {std::make_unique<SampleNorm>(
              line.parameters(0, 2), NormedParts{groups, in.channels / groups, in.places()},
              Shape{in.channels}, line.parameter_count(), epsilon_of(line), line.then()),
          line.input()};
}

MadeLayer make_layer_norm_layer(const LineReader& line) {
  const Shape& shape = line.input();
  std::vector<std::size_t> dims = line.dimensions("dims", shape);
  std::sort(dims.begin(), dims.end());
  const std::size_t first = shape.size() - dims.size();
  line.check(dims.front() == first, concat("'dims' are not the last ones of ", shape.size()));
  const Shape normed(shape.begin() + static_cast<std::ptrdiff_t>(first), shape.end());
  const std::int64_t width = values_of(normed);
  return {std::make_unique<SampleNorm>(line.parameters(0, 2),
                                       NormedParts{values_of(shape) / width, width, 1}, normed,
                                       line.parameter_count(), epsilon_of(line)),
          shape};
}

}  // namespace fedhpc
