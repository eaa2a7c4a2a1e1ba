#include "models/layer_makers.hpp"

namespace fedhpc {

MadeLayer make_linear_layer(const LineReader& line) {
  Shape shape = line.input();
  line.check(!shape.empty(), "its input has no dimensions");
  const std::int64_t in = shape.back();
  const std::int64_t places = values_of(shape) / in;
  shape.back() = line.integer("out", 1);
  return {std::make_unique<Linear>(line.parameters(1, 2), in, shape.back(), line.tags(),
                                   line.bias(), places, line.then()),
          shape};
}

MadeLayer make_relu_layer(const LineReader& line) {
  const Shape& shape = line.input();
  return {std::make_unique<Relu>(values_of(shape)), shape};
}

MadeLayer make_reshape_layer(const LineReader& line) {
  const Shape shape = line.shape("shape");
  line.check(values_of(shape) == values_of(line.input()),
             concat("a value of shape ", at::IntArrayRef(line.input()), " cannot have the shape ",
                    at::IntArrayRef(shape)));
  return {nullptr, shape};
}

}  // namespace fedhpc
