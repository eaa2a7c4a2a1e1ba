#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fedhpc/core/tensor.hpp"
#include "fedhpc/models/layout.hpp"

namespace fedhpc {

/// Where weight gradients go: rows = keep * rows + scale * gradient, column by column. An arena
/// takes {arena, 1, 0}; plain SGD is fused into the gradient products by {weights, -lr, 1}.
struct GradientSink {
  Tensor rows;  // [C, P]
  double scale = 1;
  double keep = 0;
};

/// A function of stacked weights and stacked inputs with explicit forward and backward. A layer
/// reads its parameters from its own columns of the rows [C, P] (a stride of 0 gives every client
/// the same row) and keeps no state between calls. The last dimension of every tensor is
/// contiguous.
class Layer {
 public:
  virtual ~Layer() = default;

  /// Values per sample after this layer, given those before it. Throws ConfigError if they do not
  /// fit.
  virtual std::int64_t output_features(std::int64_t input_features) const = 0;
  /// Appends the layer's parameters and buffers to the layout and remembers their columns.
  virtual void declare(Layout& layout) = 0;
  /// True if output and input (and their gradients) may share memory.
  virtual bool in_place() const { return false; }
  /// Multiplications and additions of one forward pass for one sample.
  virtual double forward_flops() const = 0;

  virtual void forward(const Tensor& weights,            // [C, P]
                       const Tensor& input,              // [C, B, in]
                       const Tensor& output) const = 0;  // [C, B, out]

  /// `input_gradient` is undefined for the first layer, whose input needs none. Reads the weights
  /// before it writes the sink, which may be the weights themselves.
  virtual void backward(const Tensor& weights, const Tensor& input, const Tensor& output,
                        const Tensor& output_gradient, const Tensor& input_gradient,
                        const GradientSink& sink) const = 0;
};

/// y = x W^T + b with W [out, in], b [out] (PyTorch's Linear): fields <name>.weight and
/// <name>.bias.
class Linear final : public Layer {
 public:
  Linear(std::string name, std::int64_t in, std::int64_t out, Tag tags);

  std::int64_t output_features(std::int64_t input_features) const override;
  void declare(Layout& layout) override;
  double forward_flops() const override { return 2.0 * static_cast<double>(in_ * out_); }
  void forward(const Tensor& weights, const Tensor& input, const Tensor& output) const override;
  void backward(const Tensor& weights, const Tensor& input, const Tensor& output,
                const Tensor& output_gradient, const Tensor& input_gradient,
                const GradientSink& sink) const override;

 private:
  std::string name_;
  std::int64_t in_;
  std::int64_t out_;
  Tag tags_;
  std::int64_t weight_column_ = 0;
  std::int64_t bias_column_ = 0;
};

/// y = max(x, 0); the gradient at 0 is 0, as in PyTorch.
class Relu final : public Layer {
 public:
  std::int64_t output_features(std::int64_t input_features) const override {
    return input_features;
  }
  void declare(Layout&) override {}
  bool in_place() const override { return true; }
  double forward_flops() const override { return 0; }
  void forward(const Tensor& weights, const Tensor& input, const Tensor& output) const override;
  void backward(const Tensor& weights, const Tensor& input, const Tensor& output,
                const Tensor& output_gradient, const Tensor& input_gradient,
                const GradientSink& sink) const override;
};

}  // namespace fedhpc
