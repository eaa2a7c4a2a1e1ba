#pragma once

#include <cstdint>

#include "fedhpc/models/device_kernels.hpp"
#include "fedhpc/models/layer.hpp"

namespace fedhpc {

/// The parts of a sample that are normalised each on its own: `groups` of them, one after the
/// other, of `channels` channels with `places` values each.
struct NormedParts {
  std::int64_t groups = 1;
  std::int64_t channels = 1;  // of a group
  std::int64_t places = 1;    // of a channel

  std::int64_t values() const { return channels * places; }  // of a group
};

/// Normalises parts of each sample and, in the same passes over memory, runs a ReLU that follows:
///   y = w (x - mean) / sqrt(variance + epsilon) + b,
/// with mean and variance (sum / n) over a part. Parameters weight (w) and bias (b), or weight, or
/// none. They have a value for each channel of a sample (GroupNorm of PyTorch; its InstanceNorm
/// with as many groups as channels) or for each channel of a part (LayerNorm).
class SampleNorm final : public Layer {
 public:
  /// `shape` is that of the parameters, of which there are so many (0 to 2).
  SampleNorm(ParameterNames names, NormedParts parts, Shape shape, std::size_t parameters,
             double epsilon = 1e-5, Then then = Then::Nothing);

  std::int64_t output_features() const override { return parts_.groups * parts_.values(); }
  /// Of a norm of one number a channel nobody can tell images from other values.
  ByChannels by_channels() const override {
    const std::int64_t channels = parts_.places > 1 ? parts_.groups * parts_.channels : 0;
    return {channels, channels};
  }
  void declare(Layout& layout) override;
  Saved make_saved(std::int64_t clients, std::int64_t batch, const at::TensorOptions& options,
                   Use use) const override;
  void forward(const Pass& pass, Stacks inputs, const Tensor& output) const override;
  void backward(const Pass& pass, Stacks inputs, const Tensor& output,
                const Tensor& output_gradient, Stacks input_gradients,
                const GradientSink& sink) const override;

 private:
  template <typename T>
  struct Weights;

  /// The values of w, and of b.
  std::int64_t width() const { return shared_ ? parts_.channels : parts_.groups * parts_.channels; }
  /// `y` is the output or its gradient.
  DeviceSampleNorm on_device_as(const Pass& pass, const Tensor& x, const Tensor& y) const;

  ParameterNames names_;
  NormedParts parts_;
  Shape shape_;
  std::size_t parameters_;
  double epsilon_;
  Then then_;
  bool shared_;              // all parts have the same parameters
  std::int64_t column_ = 0;  // w, then b
};

}  // namespace fedhpc
