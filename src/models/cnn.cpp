#include "models/families.hpp"
#include "models/image_net.hpp"

namespace fedhpc {

namespace {

constexpr Window kSame{.size = 3, .stride = 1, .padding = 1};

/// conv<i> 3x3, bn<i>, ReLU for each width, 2x2 pooling after every `pool_every`-th; then fc1.
/// No biases unless model.bias = true.
std::unique_ptr<Model> plain_cnn(const ModelOptions& options,
                                 const std::vector<std::int64_t>& shape, std::int64_t classes,
                                 const std::vector<std::int64_t>& channels,
                                 std::size_t pool_every) {
  ImageNet net(options, shape, {});
  for (std::size_t i = 1; i <= channels.size(); ++i) {
    net.conv(concat("conv", i), concat("bn", i), net.scaled(channels[i - 1]), kSame,
             i % pool_every == 0 ? Then::ReluMaxPool : Then::Relu);
  }
  net.linear("fc1", classes, net.bias());
  return net.finish();
}

/// conv<i> 3x3, batch norm, ReLU and 2x2 pooling for each width; fc1 and fc2 as wide as the last
/// one, with ReLU; fc3. Linear layers have biases.
std::unique_ptr<Model> plain_vgg(const ModelOptions& options,
                                 const std::vector<std::int64_t>& shape, std::int64_t classes,
                                 const std::vector<std::int64_t>& channels) {
  ImageNet net(options, shape, {.norm = NormChoice::Batch, .bias = BiasChoice::True});
  for (std::size_t i = 1; i <= channels.size(); ++i) {
    net.conv(concat("conv", i), concat("bn", i), net.scaled(channels[i - 1]), kSame,
             Then::ReluMaxPool);
  }
  const std::int64_t hidden = net.scaled(channels.back());
  for (const std::string name : {"fc1", "fc2"}) {
    net.linear(name, hidden, Bias::Use);
    net.relu();
  }
  net.linear("fc3", classes, Bias::Use);
  return net.finish();
}

}  // namespace

std::unique_ptr<Model> make_cnn2(const ModelOptions& options,
                                 const std::vector<std::int64_t>& shape, const Outputs& outputs) {
  return plain_cnn(options, shape, outputs, {8, 16}, 1);
}

std::unique_ptr<Model> make_cnn4(const ModelOptions& options,
                                 const std::vector<std::int64_t>& shape, const Outputs& outputs) {
  return plain_cnn(options, shape, outputs, {32, 64, 128, 256}, 1);
}

std::unique_ptr<Model> make_cnn8(const ModelOptions& options,
                                 const std::vector<std::int64_t>& shape, const Outputs& outputs) {
  return plain_cnn(options, shape, outputs, {32, 32, 64, 64, 128, 128, 256, 256}, 2);
}

std::unique_ptr<Model> make_cnn10(const ModelOptions& options,
                                  const std::vector<std::int64_t>& shape, const Outputs& outputs) {
  return plain_cnn(options, shape, outputs, {32, 32, 64, 64, 128, 128, 256, 256, 512, 512}, 2);
}

std::unique_ptr<Model> make_vgg8(const ModelOptions& options,
                                 const std::vector<std::int64_t>& shape, const Outputs& outputs) {
  return plain_vgg(options, shape, outputs, {32, 64, 128, 256, 256});
}

std::unique_ptr<Model> make_vgg_sfedhp(const ModelOptions& options,
                                       const std::vector<std::int64_t>& shape,
                                       const Outputs& outputs) {
  return plain_vgg(options, shape, outputs, {16, 32, 64, 128, 128});
}

}  // namespace fedhpc
