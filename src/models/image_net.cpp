#include "models/image_net.hpp"

#include <algorithm>
#include <cmath>

namespace fedhpc {

namespace {

constexpr double kMostChannels = 1 << 16;

ImageShape image_shape(const ModelOptions& options, const std::vector<std::int64_t>& shape) {
  if (shape.size() != 3) {
    std::int64_t features = 1;
    for (const std::int64_t length : shape) features *= length;
    throw ConfigError(
        concat("model.name = ", options.name,
               " needs images [channels, height, width], the samples of data.name are ", features,
               " numbers; choose model.name = dnn, or data made of images"));
  }
  return {shape[0], shape[1], shape[2]};
}

}  // namespace

ImageNet::ImageNet(const ModelOptions& options, const std::vector<std::int64_t>& shape,
                   FamilyDefaults defaults)
    : family_(options.name),
      width_(options.width),
      norm_(options.norm == NormChoice::Auto ? defaults.norm : options.norm),
      groups_(options.groups),
      bias_((options.bias == BiasChoice::Auto ? defaults.bias : options.bias) == BiasChoice::True
                ? Bias::Use
                : Bias::None),
      data_shape_(shape),
      shape_(image_shape(options, shape)),
      writer_(shape) {}

std::int64_t ImageNet::scaled(std::int64_t channels) const {
  const double exact = std::round(width_ * static_cast<double>(channels));
  if (exact > kMostChannels) {
    throw ConfigError(concat("model.width = ", width_, " makes ", exact, " channels of ", channels,
                             " in ", family_, "; allowed: at most ", kMostChannels));
  }
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(exact));
}

void ImageNet::check_window(Window window, std::string_view what) const {
  if (window.fits(shape_)) return;
  throw ConfigError(concat("model.name = ", family_, " does not fit images of ", data_shape_[1],
                           " x ", data_shape_[2], ": at ", shape_.height, " x ", shape_.width,
                           " there is no room for ", what, " of ", window.size.height, " x ",
                           window.size.width,
                           "; choose a model with fewer poolings, or larger images"));
}

DescriptionWriter::Numbers ImageNet::numbers_of(Window window) {
  const auto both = [](const Sides& sides) {
    return std::vector<double>{static_cast<double>(sides.height), static_cast<double>(sides.width)};
  };
  return {{"kernel", both(window.size)},
          {"stride", both(window.stride)},
          {"padding", both(window.padding)}};
}

void ImageNet::conv(const std::string& name, const std::string& norm_name, std::int64_t channels,
                    Window window, Then then) {
  check_window(window, "a window");
  DescriptionWriter::Numbers numbers = numbers_of(window);
  numbers["out"] = {static_cast<double>(channels)};
  if (bias_ == Bias::Use) {
    writer_.add(name, "convolution", numbers, {"weight", "bias"}, {writer_.last()});
  } else {
    writer_.add(name, "convolution", numbers, {"weight"}, {writer_.last()});
  }
  shape_ = window.output(shape_, channels);
  norm(norm_name);
  if (then != Then::Nothing) relu();
  if (then == Then::ReluMaxPool) max_pool({.size = 2, .stride = 2});
}

void ImageNet::norm(const std::string& name) {
  if (norm_ == NormChoice::None) return;
  if (norm_ == NormChoice::Batch) {
    writer_.add(name, "batch_norm", {}, {"weight", "bias", "running_mean", "running_var"},
                {writer_.last()});
    return;
  }
  if (shape_.channels % groups_ != 0) {
    throw ConfigError(concat("model.groups = ", groups_, " does not divide the ", shape_.channels,
                             " channels of ", name, " in model.name = ", family_,
                             "; choose another model.groups or model.width"));
  }
  writer_.add(name, "group_norm", {{"groups", {static_cast<double>(groups_)}}}, {"weight", "bias"},
              {writer_.last()});
}

void ImageNet::relu() { writer_.add("relu"); }

void ImageNet::dropout(double p) { writer_.add("dropout", {{"p", {p}}}); }

void ImageNet::max_pool(Window window) {
  check_window(window, "a pooling window");
  DescriptionWriter::Numbers numbers = numbers_of(window);
  if (window.padding == Sides(0)) numbers.erase("padding");
  writer_.add("max_pool", numbers);
  shape_ = window.output(shape_, shape_.channels);
}

void ImageNet::average_all() {
  writer_.add("adaptive_average_pool", {{"out", {1, 1}}});
  shape_ = {shape_.channels, 1, 1};
}

void ImageNet::max_all() {
  const std::int64_t side = std::max(shape_.height, shape_.width);
  if (shape_.height == shape_.width) return max_pool({.size = side, .stride = side});
  throw ConfigError(concat("model.name = ", family_, " needs square images, not ", data_shape_[1],
                           " x ", data_shape_[2], "; choose model.name = resnet18 or other data"));
}

void ImageNet::go_on_from(const Place& place) {
  writer_.go_on_from(place.line);
  shape_ = place.shape;
}

void ImageNet::add(const Place& other) { writer_.add("add", {}, {writer_.last(), other.line}); }

void ImageNet::linear(const std::string& name, std::int64_t out, Bias bias) {
  if (!flat_) writer_.reshape({shape_.values()});
  flat_ = true;
  writer_.linear(name, out, bias);
  shape_ = {out, 1, 1};
}

}  // namespace fedhpc
