#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fedhpc/core/image_shape.hpp"
#include "fedhpc/models/device_kernels.hpp"
#include "fedhpc/models/layer.hpp"

// Layers over images. A sample lies in a row of an activation as [channels, height, width]
// (PyTorch's order), so flattening costs no work. n is the samples of a batch times the places of
// an image.

namespace fedhpc {

/// A square window that moves over an image with zeros (for a maximum: nothing) around it.
struct Window {
  std::int64_t size = 3;
  std::int64_t stride = 1;
  std::int64_t padding = 0;

  /// The places along a side of length `length`: floor((length + 2 padding - size) / stride) + 1, 0
  /// where the window does not fit.
  std::int64_t outputs(std::int64_t length) const {
    const std::int64_t room = length + 2 * padding - size;
    return room < 0 ? 0 : room / stride + 1;
  }
  ImageShape output(const ImageShape& in, std::int64_t channels) const {
    return {channels, outputs(in.height), outputs(in.width)};
  }
};

/// y[o] = sum over i of W[o, i] * x[i] (cross-correlation, as in PyTorch) + b[o], with W
/// [out, in, k, k] and b [out]: parameters weight and, unless there is none, bias. The host
/// makes one call per client: ATen's kernels, or unfold and product where a window holds few
/// values. A device takes the way that was measured to be fastest.
class Conv2d final : public Layer {
 public:
  Conv2d(ParameterNames names, ImageShape in, std::int64_t out_channels, Window window, Bias bias,
         Tag tags = Tag::None);

  std::int64_t output_features() const override;
  void declare(Layout& layout) override;
  double forward_flops() const override;
  void forward(const Pass& pass, Stacks inputs, const Tensor& output) const override;
  void backward(const Pass& pass, Stacks inputs, const Tensor& output,
                const Tensor& output_gradient, Stacks input_gradients,
                const GradientSink& sink) const override;

 private:
  Tensor images(const Tensor& stack, std::int64_t c, const ImageShape& shape) const;
  Tensor weights_in(const Tensor& rows) const;
  Tensor kernels_of(const Tensor& weights, std::int64_t c) const;
  Tensor biases_in(const Tensor& rows) const;
  void forward_unfolded(const Pass& pass, const Tensor& input, const Tensor& output) const;

  ParameterNames names_;
  ImageShape in_;
  ImageShape out_;
  Window window_;
  Bias bias_;
  Tag tags_;
  std::int64_t weight_column_ = 0;
  std::int64_t bias_column_ = 0;
};

/// Runs batch norm and, in the same passes over memory, what often follows it. Per channel, over
/// the n values of a client's batch:
///   y = gamma (x - mean) / sqrt(variance + 1e-5) + beta
/// When training: mean and variance (sum / n) of the batch, and the buffers move by
///   running = 0.9 running + 0.1 batch, the variance with sum / (n - 1);
/// in evaluation: the buffers. Parameters weight (gamma), bias (beta), running_mean, running_var. Needs n > 1 when training.
class BatchNorm final : public Layer {
 public:
  enum class Then { Nothing, Relu, ReluMaxPool };  ///< pooling: 2x2 windows, stride 2

  BatchNorm(ParameterNames names, ImageShape in, Then then);

  std::int64_t output_features() const override;
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
  std::int64_t column_ = 0;  // gamma, beta, running mean, running variance: one after the other
};

/// The largest value of each window; the gradient goes to the first of equal ones.
class MaxPool2d final : public Layer {
 public:
  MaxPool2d(ImageShape in, Window window);

  std::int64_t output_features() const override;
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
  ImageShape out_;
  Window window_;
};

/// Averages over rectangles of the image.
class AveragePool2d final : public Layer {
 public:
  /// Windows without padding.
  AveragePool2d(ImageShape in, Window window);
  /// Pools to height x width as PyTorch's adaptive pooling. Output i of m covers places
  /// floor(i n / m) to ceil((i + 1) n / m) - 1 of n.
  AveragePool2d(ImageShape in, std::int64_t height, std::int64_t width);

  std::int64_t output_features() const override;
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
  std::vector<Range> rows_;     // of each output row
  std::vector<Range> columns_;  // of each output column
};

}  // namespace fedhpc
