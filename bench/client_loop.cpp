#include "client_loop.hpp"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/functional/pooling.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/pooling.h>
#include <torch/optim/sgd.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/math/device_kernels.hpp"

namespace fedhpc::bench {

namespace {

namespace nn = torch::nn;

/// Adds a 3x3 convolution, batch norm, ReLU and, where asked for, 2x2 pooling.
void add_convolution(nn::Sequential& net, std::int64_t in, std::int64_t out, bool bias, bool pool) {
  net->push_back(nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1).bias(bias)));
  net->push_back(nn::BatchNorm2d(out));
  net->push_back(nn::ReLU());
  if (pool) net->push_back(nn::MaxPool2d(2));
}

/// x + body(x)
class ResidualImpl : public nn::Module {
 public:
  explicit ResidualImpl(std::int64_t channels) {
    add_convolution(body_, channels, channels, true, false);
    add_convolution(body_, channels, channels, true, false);
    register_module("body", body_);
  }
  Tensor forward(const Tensor& x) { return x + body_->forward(x); }

 private:
  nn::Sequential body_;
};
TORCH_MODULE(Residual);

/// Adds a convolution without biases and group norm of 2 groups.
void add_normed(nn::Sequential& net, std::int64_t in, std::int64_t out, std::int64_t size,
                std::int64_t stride) {
  net->push_back(
      nn::Conv2d(nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false)));
  net->push_back(nn::GroupNorm(nn::GroupNormOptions(2, out)));
}

/// ResNet-18's block with group norm: ReLU(body(x) + side(x)), side a 1x1 convolution where the
/// shape changes.
class BasicBlockImpl : public nn::Module {
 public:
  BasicBlockImpl(std::int64_t in, std::int64_t out, std::int64_t stride) {
    add_normed(body_, in, out, 3, stride);
    body_->push_back(nn::ReLU());
    add_normed(body_, out, out, 3, 1);
    if (stride != 1 || in != out) add_normed(side_, in, out, 1, stride);
    register_module("body", body_);
    register_module("side", side_);
  }
  Tensor forward(const Tensor& x) {
    return at::relu(body_->forward(x) + (side_->is_empty() ? x : side_->forward(x)));
  }

 private:
  nn::Sequential body_;
  nn::Sequential side_;
};
TORCH_MODULE(BasicBlock);

nn::Sequential make_dnn(const TrainingSetting& setting) {
  nn::Sequential net;
  net->push_back(nn::Flatten());
  net->push_back(nn::Linear(setting.model().features(), 100));
  net->push_back(nn::ReLU());
  net->push_back(nn::Linear(100, setting.model().classes()));
  return net;
}

nn::Sequential make_cnn4(const TrainingSetting& setting) {
  nn::Sequential net;
  std::int64_t in = setting.which().shape[0];
  for (const std::int64_t out : {32, 64, 128, 256}) {
    add_convolution(net, in, out, /*bias=*/false, /*pool=*/true);
    in = out;
  }
  const std::int64_t side = setting.which().shape[1] / 16;
  net->push_back(nn::Flatten());
  net->push_back(
      nn::Linear(nn::LinearOptions(in * side * side, setting.model().classes()).bias(false)));
  return net;
}

nn::Sequential make_resnet9(const TrainingSetting& setting) {
  nn::Sequential net;
  add_convolution(net, setting.which().shape[0], 64, true, false);
  add_convolution(net, 64, 128, true, true);
  net->push_back(Residual(128));
  add_convolution(net, 128, 256, true, true);
  add_convolution(net, 256, 512, true, true);
  net->push_back(Residual(512));
  net->push_back(nn::AdaptiveMaxPool2d(nn::AdaptiveMaxPool2dOptions({1, 1})));
  net->push_back(nn::Flatten());
  net->push_back(nn::Linear(512, setting.model().classes()));
  return net;
}

nn::Sequential make_resnet18_gn(const TrainingSetting& setting) {
  nn::Sequential net;
  add_normed(net, setting.which().shape[0], 64, 3, 1);
  net->push_back(nn::ReLU());
  std::int64_t in = 64;
  for (const std::int64_t out : {64, 128, 256, 512}) {
    net->push_back(BasicBlock(in, out, out == 64 ? 1 : 2));
    net->push_back(BasicBlock(out, out, 1));
    in = out;
  }
  net->push_back(nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions({1, 1})));
  net->push_back(nn::Flatten());
  net->push_back(nn::Linear(512, setting.model().classes()));
  return net;
}

nn::Sequential make_module(const TrainingSetting& setting) {
  nn::Sequential net;
  if (setting.which().name == "dnn") net = make_dnn(setting);
  if (setting.which().name == "cnn4") net = make_cnn4(setting);
  if (setting.which().name == "resnet9") net = make_resnet9(setting);
  if (setting.which().name == "resnet18_gn") net = make_resnet18_gn(setting);
  std::int64_t numbers = 0;
  for (const Tensor& parameter : net->parameters()) numbers += parameter.numel();
  for (const Tensor& buffer : net->buffers()) numbers += buffer.dim() == 0 ? 0 : buffer.numel();
  require(numbers == setting.model().layout()->size(), "the loop trains the project's model");
  net->to(setting.device());
  return net;
}

/// Products and convolutions by LibTorch in a precision, for the length of a scope.
class LoopPrecision {
 public:
  LoopPrecision(at::Device device, Precision precision) : device_(device.type()) {
    casts_ = precision == Precision::Bf16;
    if (casts_) {
      at::autocast::set_autocast_enabled(device_, true);
      at::autocast::set_autocast_dtype(device_, at::kBFloat16);
    }
    if (device.is_cuda() && !casts_) device_kernels<MathKernels>().use_precision(precision);
  }
  ~LoopPrecision() {
    if (casts_) {
      at::autocast::clear_cache();
      at::autocast::set_autocast_enabled(device_, false);
    }
    if (device_ == at::kCUDA) device_kernels<MathKernels>().use_precision(Precision::Fp32);
  }
  LoopPrecision(const LoopPrecision&) = delete;
  LoopPrecision& operator=(const LoopPrecision&) = delete;

  /// Weights cast to bfloat16 are good for one step.
  void end_step() const {
    if (casts_) at::autocast::clear_cache();
  }

 private:
  at::DeviceType device_;
  bool casts_ = false;
};

}  // namespace

struct ClientLoop::Client {
  nn::Sequential model;
  torch::optim::SGD optimizer;
  Tensor features;  // [S, shape...] float32
  Tensor labels;    // [S]
};

ClientLoop::ClientLoop(const TrainingSetting& setting, std::int64_t clients, std::int64_t steps,
                       double lr, Precision precision)
    : setting_(setting), steps_(steps), precision_(precision) {
  for (std::int64_t client = 0; client < clients; ++client) {
    nn::Sequential model = make_module(setting);
    torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(lr));
    clients_.push_back(std::make_unique<Client>(Client{
        model, std::move(optimizer), setting.features_of(client), setting.labels_of(client)}));
  }
}

ClientLoop::~ClientLoop() = default;

std::int64_t ClientLoop::steps() const {
  return steps_ * static_cast<std::int64_t>(clients_.size());
}

double ClientLoop::operator()() {
  const LoopPrecision precision(setting_.device(), precision_);
  const at::TensorOptions on_device(setting_.device());
  const std::int64_t batch = setting_.batch();
  const std::int64_t in_epoch = setting_.samples() / batch;
  Tensor total = at::zeros({}, on_device.dtype(at::kFloat));
  for (const auto& client : clients_) {
    Tensor order;
    for (std::int64_t s = 0; s < steps_; ++s) {
      if (s % in_epoch == 0) order = at::randperm(setting_.samples(), on_device.dtype(at::kLong));
      const Tensor picked = order.narrow(0, s % in_epoch * batch, batch);
      client->optimizer.zero_grad();
      const Tensor loss = nn::functional::cross_entropy(
          client->model->forward(client->features.index_select(0, picked)),
          client->labels.index_select(0, picked));
      loss.backward();
      client->optimizer.step();
      total += loss.detach();
      precision.end_step();
    }
  }
  return total.item<double>();
}

}  // namespace fedhpc::bench
