#include "reference/nets.hpp"

#include <algorithm>

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/group_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>

namespace fedhpc::testing {

namespace {

struct Net {
  const Layout& layout;
  const Tensor& row;  // [P]
  Use use;
  const Tensor& moved;  // [P], or undefined
  std::int64_t groups;
  bool valid;  // convolutions without padding

  bool has(const std::string& name) const {
    return std::any_of(layout.fields().begin(), layout.fields().end(),
                       [&](const Field& field) { return field.name == name; });
  }
  Tensor at(const std::string& name) const {
    if (!has(name)) return {};
    return in(row, name);
  }
  Tensor in(const Tensor& some_row, const std::string& name) const {
    const Field& field = layout.field(name);
    return some_row.narrow(0, field.offset, field.size).view(field.shape);
  }
  Tensor conv(const Tensor& x, const std::string& name, std::int64_t stride = 1) const {
    const Tensor weight = at(name + ".weight");
    const std::int64_t padding = valid ? 0 : weight.size(2) / 2;
    return at::conv2d(x, weight, at(name + ".bias"), {stride, stride}, {padding, padding});
  }
  Tensor norm(const Tensor& x, const std::string& name) const {
    if (!has(name + ".weight")) return x;
    if (!has(name + ".running_mean")) {
      return at::group_norm(x, groups, at(name + ".weight"), at(name + ".bias"), 1e-5,
                            /*cudnn_enabled=*/false);
    }
    const bool training = use == Use::Training;
    const Tensor& running = training ? moved : row;
    const auto statistic = [&](const std::string& which) {
      return running.defined() ? in(running, name + which) : Tensor();
    };
    return at::batch_norm(x, at(name + ".weight"), at(name + ".bias"), statistic(".running_mean"),
                          statistic(".running_var"), training, 0.1, 1e-5, /*cudnn_enabled=*/false);
  }
  Tensor unit(const Tensor& x, const std::string& prefix, std::size_t i) const {
    return at::relu(norm(conv(x, prefix + concat("conv", i)), prefix + concat("bn", i)));
  }
  Tensor linear(const Tensor& x, const std::string& name) const {
    return at::linear(x, at(name + ".weight"), at(name + ".bias"));
  }
};

Tensor halved(const Tensor& x) { return at::max_pool2d(x, {2, 2}); }

Tensor resnet18(const Net& net, const ModelOptions& options, Tensor x) {
  const bool large = options.stem == Stem::Imagenet;
  x = at::relu(net.norm(net.conv(x, "conv1", large ? 2 : 1), "bn1"));
  if (large) x = at::max_pool2d(x, {3, 3}, {2, 2}, {1, 1});
  for (int stage = 1; stage <= 4; ++stage) {
    for (int block = 0; block < 2; ++block) {
      const std::string name = concat("layer", stage, ".", block);
      const std::int64_t stride = stage > 1 && block == 0 ? 2 : 1;
      Tensor y = at::relu(net.norm(net.conv(x, name + ".conv1", stride), name + ".bn1"));
      y = net.norm(net.conv(y, name + ".conv2"), name + ".bn2");
      if (net.has(name + ".downsample.0.weight")) {
        x = net.norm(net.conv(x, name + ".downsample.0", stride), name + ".downsample.1");
      }
      x = at::relu(x.add(y));
    }
  }
  return net.linear(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1), "fc");
}

Tensor resnet9(const Net& net, Tensor x) {
  x = halved(net.unit(net.unit(x, "", 1), "", 2));
  x = x.add(net.unit(net.unit(x, "res1.", 1), "res1.", 2));
  x = halved(net.unit(halved(net.unit(x, "", 3)), "", 4));
  x = x.add(net.unit(net.unit(x, "res2.", 1), "res2.", 2));
  return net.linear(x.amax({2, 3}), "fc");
}

}  // namespace

Tensor reference_logits(const ModelOptions& options, const Layout& layout, const Tensor& row,
                        const Tensor& samples, Use use, const Tensor& moved) {
  const Net net{layout, row, use, moved, options.groups, options.name == "cnn_fedavg"};
  if (options.name == "resnet18") return resnet18(net, options, samples);
  if (options.name == "resnet9") return resnet9(net, samples);
  const std::size_t pool_every = options.name == "cnn8" || options.name == "cnn10" ? 2 : 1;
  Tensor x = samples;
  for (std::size_t i = 1; net.has(concat("conv", i, ".weight")); ++i) {
    x = net.unit(x, "", i);
    if (i % pool_every == 0) x = halved(x);
  }
  x = x.flatten(1);
  for (std::size_t i = 1; net.has(concat("fc", i, ".weight")); ++i) {
    if (i > 1) x = at::relu(x);
    x = net.linear(x, concat("fc", i));
  }
  return options.name == "mlr_sigmoid" ? at::sigmoid(x) : x;
}

std::vector<std::string> families_with_reference() {
  std::vector<std::string> names = model_registry().names();
  std::erase_if(names, [](const std::string& name) {
    return name == "file" || name == "cnn_dropout";  // somebody's own, and one that draws
  });
  return names;
}

}  // namespace fedhpc::testing
