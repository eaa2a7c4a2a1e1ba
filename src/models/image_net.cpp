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
      norm_((options.norm == NormChoice::Auto ? defaults.norm : options.norm) == NormChoice::Batch),
      bias_((options.bias == BiasChoice::Auto ? defaults.bias : options.bias) == BiasChoice::True
                ? Bias::Use
                : Bias::None),
      data_shape_(shape),
      shape_(image_shape(options, shape)),
      chain_(shape_.values()) {}

ImageNet::ImageNet(const ImageNet& other, Chain chain)
    : family_(other.family_),
      width_(other.width_),
      norm_(other.norm_),
      bias_(other.bias_),
      relu_memory_(Relu::Memory::Own),
      data_shape_(other.data_shape_),
      shape_(other.shape_),
      chain_(std::move(chain)) {}

ImageNet ImageNet::branch(const ImageNet& other) { return {other, Chain(other.shape_.values())}; }

std::int64_t ImageNet::scaled(std::int64_t channels) const {
  const double exact = std::round(width_ * static_cast<double>(channels));
  if (exact > kMostChannels) {
    throw ConfigError(concat("model.width = ", width_, " makes ", exact, " channels of ", channels,
                             " in ", family_, "; allowed: at most ", kMostChannels));
  }
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(exact));
}

void ImageNet::check_window(Window window, std::string_view what) const {
  if (std::min(window.outputs(shape_.height), window.outputs(shape_.width)) > 0) return;
  throw ConfigError(concat("model.name = ", family_, " does not fit images of ", data_shape_[1],
                           " x ", data_shape_[2], ": at ", shape_.height, " x ", shape_.width,
                           " there is no room for ", what, " of ", window.size, " x ", window.size,
                           "; choose a model with fewer poolings, or larger images"));
}

void ImageNet::conv(const std::string& name, const std::string& norm_name, std::int64_t channels,
                    Window window, Then then) {
  check_window(window, "a window");
  chain_.add(std::make_unique<Conv2d>(name, shape_, channels, window, bias_));
  shape_ = window.output(shape_, channels);
  const Window halves{.size = 2, .stride = 2};
  if (!norm_) {
    if (then != Then::Nothing) relu();
    if (then == Then::ReluMaxPool) max_pool(halves);
    return;
  }
  auto after = BatchNorm::Then::Nothing;
  if (then == Then::Relu) after = BatchNorm::Then::Relu;
  if (then == Then::ReluMaxPool) {
    check_window(halves, "a pooling window");
    after = BatchNorm::Then::ReluMaxPool;
  }
  chain_.add(std::make_unique<BatchNorm>(norm_name, shape_, after));
  if (then == Then::ReluMaxPool) shape_ = halves.output(shape_, channels);
}

void ImageNet::relu() { chain_.add(std::make_unique<Relu>(relu_memory_)); }

void ImageNet::max_pool(Window window) {
  check_window(window, "a pooling window");
  chain_.add(std::make_unique<MaxPool2d>(shape_, window));
  shape_ = window.output(shape_, shape_.channels);
}

void ImageNet::average_all() {
  chain_.add(std::make_unique<AveragePool2d>(shape_, 1, 1));
  shape_ = {shape_.channels, 1, 1};
}

void ImageNet::max_all() {
  const std::int64_t side = std::max(shape_.height, shape_.width);
  if (shape_.height == shape_.width) return max_pool({.size = side, .stride = side});
  throw ConfigError(concat("model.name = ", family_, " needs square images, not ", data_shape_[1],
                           " x ", data_shape_[2], "; choose model.name = resnet18 or other data"));
}

void ImageNet::residual(ImageNet body, ImageNet shortcut) {
  shape_ = body.shape_;
  chain_.add(std::make_unique<Residual>(std::move(body.chain_), std::move(shortcut.chain_)));
}

void ImageNet::linear(const std::string& name, std::int64_t out, Tag tags, Bias bias) {
  chain_.add(std::make_unique<Linear>(name, shape_.values(), out, tags, bias));
  shape_ = {out, 1, 1};
}

}  // namespace fedhpc
