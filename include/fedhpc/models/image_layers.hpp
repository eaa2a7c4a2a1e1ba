#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fedhpc/core/image_shape.hpp"
#include "fedhpc/models/device_kernels.hpp"
#include "fedhpc/models/layer.hpp"
#include "fedhpc/models/window.hpp"

// Layers over images. A sample lies in a row of an activation as [channels, height, width]
// (PyTorch's order), so flattening costs no work; between these layers a device has images by
// channels. n is the samples of a batch times the places of an image.

namespace fedhpc {

class HostConvolution;

/// y[o] = sum over i of W[o, i] * x[i] (cross-correlation, as in PyTorch) + b[o], with W
/// [out, in / groups, kh, kw] and b [out]: parameters weight and, unless there is none, bias. The
/// output channels of a group see the input channels of that group. With `dimensions` 1 the image
/// is a row of height 1, and W is [out, in / groups, kw]. The host has kernels of its own for one
/// group and ATen's for several, client by client. A device takes the way that was measured to be
/// fastest.
class Conv2d final : public Layer {
 public:
  Conv2d(ParameterNames names, ImageShape in, std::int64_t out_channels, Window window, Bias bias,
         Tag tags = Tag::None, std::int64_t groups = 1, std::int64_t dimensions = 2);

  std::int64_t output_features() const override;
  ByChannels by_channels() const override { return {in_.channels, out_.channels}; }
  void declare(Layout& layout) override;
  double forward_flops() const override;
  Saved make_saved(std::int64_t clients, std::int64_t batch, const at::TensorOptions& options,
                   Use use) const override;
  void forward(const Pass& pass, Stacks inputs, const Tensor& output) const override;
  void backward(const Pass& pass, Stacks inputs, const Tensor& output,
                const Tensor& output_gradient, Stacks input_gradients,
                const GradientSink& sink) const override;

 private:
  /// The values of a window that one output sees.
  std::int64_t inner() const { return in_.channels / groups_ * window_.size.product(); }
  Tensor images(const Tensor& stack, std::int64_t c, const ImageShape& shape) const;
  Tensor weights_in(const Tensor& rows) const;
  Tensor kernels_of(const Tensor& weights, std::int64_t c) const;
  Tensor biases_in(const Tensor& rows) const;

  ParameterNames names_;
  ImageShape in_;
  ImageShape out_;
  Window window_;
  Bias bias_;
  Tag tags_;
  std::int64_t groups_;
  std::int64_t dimensions_;
  std::shared_ptr<const HostConvolution> host_;  // of one group, unless an image is huge
  std::int64_t weight_column_ = 0;
  std::int64_t bias_column_ = 0;
};

/// Runs batch norm and, in the same passes over memory, what often follows it. Per channel, over
/// the n values of a client's batch:
///   y = gamma (x - mean) / sqrt(variance + epsilon) + beta
/// When training: mean and variance (sum / n) of the batch, and the buffers move by
///   running = (1 - momentum) running + momentum batch, the variance with sum / (n - 1);
/// in evaluation: the buffers. Parameters weight (gamma), bias (beta), running_mean, running_var.
/// Needs n > 1 when training.
class BatchNorm final : public Layer {
 public:
  BatchNorm(ParameterNames names, ImageShape in, Then then, double epsilon = 1e-5,
            double momentum = 0.1);

  std::int64_t output_features() const override;
  ByChannels by_channels() const override { return {in_.channels, in_.channels}; }
  void declare(Layout& layout) override;
  Saved make_saved(std::int64_t clients, std::int64_t batch, const at::TensorOptions& options,
                   Use use) const override;
  void forward(const Pass& pass, Stacks inputs, const Tensor& output) const override;
  void backward(const Pass& pass, Stacks inputs, const Tensor& output,
                const Tensor& output_gradient, Stacks input_gradients,
                const GradientSink& sink) const override;

 private:
  /// `y` is the output or its gradient.
  DeviceBatchNorm on_device_as(const Pass& pass, const Tensor& x, const Tensor& y) const;

  ParameterNames names_;
  ImageShape in_;
  Then then_;
  double epsilon_;
  double momentum_;
  std::int64_t column_ = 0;  // gamma, beta, running mean, running variance: one after the other
};

/// What the outputs of a pooling cover: output (y, x) takes rows[y] and columns[x] of a plane.
struct Pooled {
  std::vector<Covered> rows;
  std::vector<Covered> columns;

  std::int64_t places() const { return static_cast<std::int64_t>(rows.size() * columns.size()); }
  /// The rows, then the columns, where a device's kernels read them; nothing on a host.
  Saved on_device(const at::TensorOptions& options) const;
};

/// The largest value of each window; the gradient goes to the first of equal ones.
class MaxPool2d final : public Layer {
 public:
  /// Every window has a place inside the image.
  MaxPool2d(ImageShape in, Window window);
  /// The largest value of each of height x width parts, as PyTorch's adaptive pooling.
  MaxPool2d(ImageShape in, std::int64_t height, std::int64_t width);

  std::int64_t output_features() const override { return in_.channels * pooled_.places(); }
  ByChannels by_channels() const override { return {in_.channels, in_.channels}; }
  Saved make_saved(std::int64_t clients, std::int64_t batch, const at::TensorOptions& options,
                   Use use) const override;
  void forward(const Pass& pass, Stacks inputs, const Tensor& output) const override;
  void backward(const Pass& pass, Stacks inputs, const Tensor& output,
                const Tensor& output_gradient, Stacks input_gradients,
                const GradientSink& sink) const override;

 private:
  /// `x` and `y`, or their gradients.
  DeviceMaxPool on_device_as(const Pass& pass, const Tensor& x, const Tensor& y) const;

  ImageShape in_;
  Window window_{};        // with adaptive_: only a dilation of 1
  bool adaptive_ = false;  // parts, no windows
  Pooled pooled_;
};

/// The mean of each window.
class AveragePool2d final : public Layer {
 public:
  /// Windows without dilation. The zeros of the padding count as values, or not.
  AveragePool2d(ImageShape in, Window window, bool count_padding = true);
  /// The mean of each of height x width parts, as PyTorch's adaptive pooling.
  AveragePool2d(ImageShape in, std::int64_t height, std::int64_t width);

  std::int64_t output_features() const override { return in_.channels * pooled_.places(); }
  ByChannels by_channels() const override { return {in_.channels, in_.channels}; }
  double forward_flops() const override { return static_cast<double>(in_.values()); }
  Saved make_saved(std::int64_t clients, std::int64_t batch, const at::TensorOptions& options,
                   Use use) const override;
  void forward(const Pass& pass, Stacks inputs, const Tensor& output) const override;
  void backward(const Pass& pass, Stacks inputs, const Tensor& output,
                const Tensor& output_gradient, Stacks input_gradients,
                const GradientSink& sink) const override;

 private:
  template <typename T, typename Work>
  void each_window(const Tensor& image, const Tensor& pooled, Work&& work) const;
  DeviceAveragePool on_device_as(const Pass& pass, const Tensor& image, const Tensor& pooled) const;

  ImageShape in_;
  Pooled pooled_;
};

}  // namespace fedhpc
