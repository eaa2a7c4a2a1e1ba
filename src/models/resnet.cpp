#include "models/families.hpp"
#include "models/image_net.hpp"

namespace fedhpc {

namespace {

constexpr Window kSame{.size = 3, .stride = 1, .padding = 1};

/// torchvision's BasicBlock: conv1 bn1 ReLU conv2 bn2, plus the input or, where the shape changes,
/// its 1x1 convolution (downsample.0) and batch norm (downsample.1); ReLU.
void basic_block(ImageNet& net, const std::string& name, std::int64_t channels,
                 std::int64_t stride) {
  const ImageNet::Place input = net.here();
  const Window first{.size = 3, .stride = stride, .padding = 1};
  net.conv(name + ".conv1", name + ".bn1", channels, first, Then::Relu);
  net.conv(name + ".conv2", name + ".bn2", channels, kSame, Then::Nothing);
  const ImageNet::Place body = net.here();
  if (stride == 1 && channels == input.shape.channels) {
    net.add(input);
  } else {
    net.go_on_from(input);
    net.conv(name + ".downsample.0", name + ".downsample.1", channels,
             {.size = 1, .stride = stride}, Then::Nothing);
    net.add(body);
  }
  net.relu();
}

/// x + ReLU(bn2(conv2(ReLU(bn1(conv1(x)))))).
void inner_block(ImageNet& net, const std::string& name) {
  const ImageNet::Place input = net.here();
  net.conv(name + ".conv1", name + ".bn1", input.shape.channels, kSame, Then::Relu);
  net.conv(name + ".conv2", name + ".bn2", input.shape.channels, kSame, Then::Relu);
  net.add(input);
}

}  // namespace

std::unique_ptr<Model> make_resnet9(const ModelOptions& options,
                                    const std::vector<std::int64_t>& shape,
                                    const Outputs& outputs) {
  ImageNet net(options, shape, {.norm = NormChoice::Batch, .bias = BiasChoice::True});
  net.conv("conv1", "bn1", net.scaled(64), kSame, Then::Relu);
  net.conv("conv2", "bn2", net.scaled(128), kSame, Then::ReluMaxPool);
  inner_block(net, "res1");
  net.conv("conv3", "bn3", net.scaled(256), kSame, Then::ReluMaxPool);
  net.conv("conv4", "bn4", net.scaled(512), kSame, Then::ReluMaxPool);
  inner_block(net, "res2");
  net.max_all();
  net.linear("fc", outputs, Bias::Use);
  return net.finish();
}

std::unique_ptr<Model> make_resnet18(const ModelOptions& options,
                                     const std::vector<std::int64_t>& shape,
                                     const Outputs& outputs) {
  ImageNet net(options, shape, {});
  if (options.stem == Stem::Imagenet) {
    net.conv("conv1", "bn1", net.scaled(64), {.size = 7, .stride = 2, .padding = 3}, Then::Relu);
    net.max_pool({.size = 3, .stride = 2, .padding = 1});
  } else {
    net.conv("conv1", "bn1", net.scaled(64), kSame, Then::Relu);
  }
  for (std::int64_t stage = 1; stage <= 4; ++stage) {
    const std::int64_t channels = net.scaled(std::int64_t{32} << stage);
    basic_block(net, concat("layer", stage, ".0"), channels, stage == 1 ? 1 : 2);
    basic_block(net, concat("layer", stage, ".1"), channels, 1);
  }
  net.average_all();
  net.linear("fc", outputs, Bias::Use);
  return net.finish();
}

}  // namespace fedhpc
