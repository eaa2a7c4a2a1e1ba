#include "reference/nets.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/group_norm.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

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

Tensor lstm_leaf(const Net& net, const ModelOptions& options, const Tensor& tokens) {
  Tensor x = at::embedding(net.at("embedding.weight"), tokens, options.padding.value_or(-1));
  std::vector<Tensor> parameters;
  std::int64_t layers = 0;
  for (; net.has(concat("lstm.weight_ih_l", layers)); ++layers) {
    for (const char* what : {"weight_ih_l", "weight_hh_l", "bias_ih_l", "bias_hh_l"}) {
      parameters.push_back(net.at(concat("lstm.", what, layers)));
    }
  }
  const Tensor zeros = at::zeros({layers, x.size(0), options.units}, x.options());
  x = std::get<0>(at::lstm(x, {zeros, zeros}, parameters, true, layers, 0, false, false, true));
  if (options.places == Places::Last) x = x.select(1, -1);
  return net.linear(x, "fc").flatten(1);
}

Tensor transformer(const Net& net, const ModelOptions& options, const Tensor& tokens) {
  const Tensor table = net.at("embedding.weight");
  const std::int64_t width = table.size(1);
  const std::int64_t places = tokens.size(1);
  const Tensor even = at::arange(0, width, 2, at::kDouble);
  const Tensor angles = at::arange(places, at::kDouble)
                            .unsqueeze(1)
                            .div(at::pow(10000.0, even.div(static_cast<double>(width))));
  const Tensor positions = at::stack({angles.sin(), angles.cos()}, 2).flatten(1);
  Tensor x = at::embedding(table, tokens, options.padding.value_or(0))
                 .mul(std::sqrt(static_cast<double>(width)))
                 .add(positions);
  const auto norm = [&](const Tensor& of, const std::string& name) {
    return at::layer_norm(of, {width}, net.at(name + ".weight"), net.at(name + ".bias"), 1e-5);
  };
  for (int i = 0; net.has(concat("layers.", i, ".norm1.weight")); ++i) {
    const std::string name = concat("layers.", i, ".");
    const auto parts = at::linear(x, net.at(name + "self_attn.in_proj_weight"),
                                  net.at(name + "self_attn.in_proj_bias"))
                           .chunk(3, 2);
    const auto heads = [&](const Tensor& of) {
      return of.unflatten(2, {options.heads, width / options.heads}).transpose(1, 2);
    };
    const Tensor attended = at::scaled_dot_product_attention(heads(parts[0]), heads(parts[1]),
                                                             heads(parts[2]), {}, 0, true);
    x = norm(x.add(net.linear(attended.transpose(1, 2).flatten(2), name + "self_attn.out_proj")),
             name + "norm1");
    const Tensor wide = at::relu(net.linear(x, name + "linear1"));
    x = norm(x.add(net.linear(wide, name + "linear2")), name + "norm2");
  }
  return net.linear(x, "fc").flatten(1);
}

}  // namespace

Tensor reference_logits(const ModelOptions& options, const Layout& layout, const Tensor& row,
                        const Tensor& samples, Use use, const Tensor& moved) {
  const Net net{layout, row, use, moved, options.groups, options.name == "cnn_fedavg"};
  if (options.name == "resnet18") return resnet18(net, options, samples);
  if (options.name == "resnet9") return resnet9(net, samples);
  if (options.name == "lstm_leaf") return lstm_leaf(net, options, samples.to(at::kLong));
  if (options.name == "transformer") return transformer(net, options, samples.to(at::kLong));
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
