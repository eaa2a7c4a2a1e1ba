// Networks of the field's benchmark problems.

#include "models/families.hpp"
#include "models/image_net.hpp"

namespace fedhpc {

namespace {

constexpr FamilyDefaults kPlain{.norm = NormChoice::None, .bias = BiasChoice::True};

/// Two convolutions with ReLU and 2x2 pooling, a hidden linear layer.
std::unique_ptr<Model> two_convolutions(const ModelOptions& options, const Shape& shape,
                                        std::int64_t classes, Window window, std::int64_t hidden) {
  ImageNet net(options, shape, kPlain);
  net.conv("conv1", "bn1", net.scaled(32), window, Then::ReluMaxPool);
  net.conv("conv2", "bn2", net.scaled(64), window, Then::ReluMaxPool);
  net.linear("fc1", net.scaled(hidden), Bias::Use);
  net.relu();
  net.linear("fc2", classes, Bias::Use);
  return net.finish();
}

}  // namespace

std::unique_ptr<Model> make_cnn_dropout(const ModelOptions& options, const Shape& shape,
                                        const Outputs& outputs) {
  ImageNet net(options, shape, kPlain);
  net.conv("conv1", "bn1", net.scaled(32), {.size = 3}, Then::Relu);
  net.conv("conv2", "bn2", net.scaled(64), {.size = 3}, Then::ReluMaxPool);
  net.dropout(0.25);
  net.linear("fc1", net.scaled(128), Bias::Use);
  net.relu();
  net.dropout(0.5);
  net.linear("fc2", outputs, Bias::Use);
  return net.finish();
}

std::unique_ptr<Model> make_cnn_leaf(const ModelOptions& options, const Shape& shape,
                                     const Outputs& outputs) {
  return two_convolutions(options, shape, outputs, {.size = 5, .padding = 2}, 2048);
}

std::unique_ptr<Model> make_cnn_fedavg(const ModelOptions& options, const Shape& shape,
                                       const Outputs& outputs) {
  return two_convolutions(options, shape, outputs, {.size = 5}, 512);
}

}  // namespace fedhpc
