#include "fedhpc/models/image_layers.hpp"

#include "models/layer_makers.hpp"

namespace fedhpc {

namespace {

ImageShape image_of(const Shape& shape) { return {shape[0], shape[1], shape[2]}; }

Shape shape_of(const ImageShape& image) { return {image.channels, image.height, image.width}; }

/// The one number of a key of two.
std::int64_t square(const LineReader& line, const std::string& key,
                    const std::vector<std::int64_t>& sides) {
  line.check(sides[0] == sides[1], concat("'", key, "' needs two equal numbers"));
  return sides[0];
}

Window window_of(const LineReader& line, std::int64_t otherwise_stride) {
  Window window{.size = square(line, "kernel", line.integers("kernel", 2, 1))};
  const std::int64_t stride = otherwise_stride == 0 ? window.size : otherwise_stride;
  window.stride = square(line, "stride", line.integers_or("stride", 2, stride, 1));
  window.padding = square(line, "padding", line.integers_or("padding", 2, 0, 0));
  return window;
}

void check_room(const LineReader& line, const Window& window, const ImageShape& in) {
  line.check(window.outputs(in.height) > 0 && window.outputs(in.width) > 0,
             concat("a window of ", window.size, " does not fit into an image of ", in.height,
                    " x ", in.width));
}

}  // namespace

MadeLayer make_convolution_layer(const LineReader& line) {
  const ImageShape in = image_of(line.input(3, 3));
  const Window window = window_of(line, 1);
  check_room(line, window, in);
  const std::int64_t channels = line.integer("out", 1);
  return {std::make_unique<Conv2d>(line.parameters(1, 2), in, channels, window, line.bias(),
                                   line.tags()),
          shape_of(window.output(in, channels))};
}

MadeLayer make_batch_norm_layer(const LineReader& line) {
  const Shape& shape = line.input(3, 3);
  const auto then = line.then() == LineReader::Then::Nothing ? BatchNorm::Then::Nothing
                    : line.then() == LineReader::Then::Relu  ? BatchNorm::Then::Relu
                                                             : BatchNorm::Then::ReluMaxPool;
  return {std::make_unique<BatchNorm>(line.parameters(4, 4), image_of(shape), then), shape};
}

MadeLayer make_max_pool_layer(const LineReader& line) {
  const ImageShape in = image_of(line.input(3, 3));
  const Window window = window_of(line, 0);
  check_room(line, window, in);
  return {std::make_unique<MaxPool2d>(in, window), shape_of(window.output(in, in.channels))};
}

MadeLayer make_average_pool_layer(const LineReader& line) {
  const ImageShape in = image_of(line.input(3, 3));
  const Window window = window_of(line, 0);
  check_room(line, window, in);
  line.check(window.padding == 0, "an average takes no padding");
  return {std::make_unique<AveragePool2d>(in, window), shape_of(window.output(in, in.channels))};
}

MadeLayer make_adaptive_average_pool_layer(const LineReader& line) {
  const ImageShape in = image_of(line.input(3, 3));
  const std::vector<std::int64_t> out = line.integers("out", 2, 1);
  return {std::make_unique<AveragePool2d>(in, out[0], out[1]), {in.channels, out[0], out[1]}};
}

}  // namespace fedhpc
