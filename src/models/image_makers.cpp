#include "fedhpc/models/image_layers.hpp"

#include "models/layer_makers.hpp"

namespace fedhpc {

namespace {

/// The image of a value [C, H, W], or [C, L]: a row of height 1.
struct Image {
  ImageShape shape;
  std::size_t dimensions;

  explicit Image(const LineReader& line) : shape{}, dimensions(line.input(2, 3).size() - 1) {
    const Shape& of = line.input();
    shape = {of[0], dimensions == 2 ? of[1] : 1, of.back()};
  }
  /// What a layer makes of it.
  Shape value(const ImageShape& made) const {
    if (dimensions == 2) return {made.channels, made.height, made.width};
    return {made.channels, made.width};
  }
  /// Numbers of a key, one for each dimension; `row` is that of the height of a row.
  Sides sides(const std::vector<std::int64_t>& numbers, std::int64_t row) const {
    return {dimensions == 2 ? numbers[0] : row, numbers.back()};
  }
};

enum class Stride { One, Kernel };  // where the line says nothing

Window window_of(const LineReader& line, const Image& image, Stride otherwise) {
  const std::size_t count = image.dimensions;
  Window window{.size = image.sides(line.integers("kernel", count, 1), 1)};
  window.stride = otherwise == Stride::Kernel && !line.has("stride")
                      ? window.size
                      : image.sides(line.integers_or("stride", count, 1, 1), 1);
  window.padding = image.sides(line.integers_or("padding", count, 0, 0), 0);
  return window;
}

void check_room(const LineReader& line, const Window& window, const ImageShape& in) {
  line.check(window.fits(in),
             concat("a window of ", window.down().span(), " x ", window.across().span(),
                    " does not fit into an image of ", in.height, " x ", in.width));
}

/// As PyTorch asks for it. Every window has a place inside the image then, unless it is dilated.
void check_padding(const LineReader& line, const Window& window, const ImageShape& in) {
  for (const WindowSide& side : {window.down(), window.across()}) {
    line.check(2 * side.padding <= side.size,
               concat("'padding' is ", side.padding, "; allowed: at most half of 'kernel', ",
                      side.size / 2));
  }
  const auto reaches = [](const WindowSide& side, std::int64_t length) {
    for (const Covered& one : side.covered(length, false)) {
      if (one.first >= one.last) return false;
    }
    return true;
  };
  line.check(reaches(window.down(), in.height) && reaches(window.across(), in.width),
             "a window lies in the padding alone; take less padding or dilation");
}

constexpr std::int64_t kMostParts = 1 << 16;  // of a side

Sides parts_of(const LineReader& line, const Image& image) {
  return image.sides(line.integers("out", image.dimensions, 1, kMostParts), 1);
}

}  // namespace

MadeLayer make_convolution_layer(const LineReader& line) {
  const Image image(line);
  Window window = window_of(line, image, Stride::One);
  window.dilation = image.sides(line.integers_or("dilation", image.dimensions, 1, 1), 1);
  check_room(line, window, image.shape);
  const std::int64_t channels = line.integer("out", 1);
  const std::int64_t groups = line.integer_or("groups", 1, 1);
  line.check(image.shape.channels % groups == 0 && channels % groups == 0,
             concat("its ", image.shape.channels, " and ", channels, " channels do not make ",
                    groups, " equal groups"));
  line.check(
      is_bounded({channels, image.shape.channels / groups, window.size.height, window.size.width}),
      "its weights are more than 2^31 numbers");
  return {
      std::make_unique<Conv2d>(line.parameters(1, 2), image.shape, channels, window, line.bias(),
                               line.tags(), groups, static_cast<std::int64_t>(image.dimensions)),
      image.value(window.output(image.shape, channels))};
}

MadeLayer make_max_pool_layer(const LineReader& line) {
  const Image image(line);
  Window window = window_of(line, image, Stride::Kernel);
  window.dilation = image.sides(line.integers_or("dilation", image.dimensions, 1, 1), 1);
  window.ceil = line.flag_or("ceil", false);
  check_room(line, window, image.shape);
  check_padding(line, window, image.shape);
  return {std::make_unique<MaxPool2d>(image.shape, window),
          image.value(window.output(image.shape, image.shape.channels))};
}

MadeLayer make_average_pool_layer(const LineReader& line) {
  const Image image(line);
  Window window = window_of(line, image, Stride::Kernel);
  window.ceil = line.flag_or("ceil", false);
  const bool count_padding = line.flag_or("count_padding", true);
  check_room(line, window, image.shape);
  check_padding(line, window, image.shape);
  return {std::make_unique<AveragePool2d>(image.shape, window, count_padding),
          image.value(window.output(image.shape, image.shape.channels))};
}

MadeLayer make_adaptive_average_pool_layer(const LineReader& line) {
  const Image image(line);
  const Sides out = parts_of(line, image);
  return {std::make_unique<AveragePool2d>(image.shape, out.height, out.width),
          image.value({image.shape.channels, out.height, out.width})};
}

MadeLayer make_adaptive_max_pool_layer(const LineReader& line) {
  const Image image(line);
  const Sides out = parts_of(line, image);
  return {std::make_unique<MaxPool2d>(image.shape, out.height, out.width),
          image.value({image.shape.channels, out.height, out.width})};
}

}  // namespace fedhpc
