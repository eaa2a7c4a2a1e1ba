#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fedhpc/core/context.hpp"
#include "fedhpc/models/layout.hpp"

namespace fedhpc {

enum class Use { Training, Evaluation };

/// Takes weight gradients: rows = keep * rows + scale * gradient, column by column. An arena takes
/// {arena, 1, 0}; plain SGD is fused into the gradient products by {weights, -lr, 1}. Buffers have
/// no gradient: their columns stay as they are, and so do those not in `columns`.
struct GradientSink {
  Tensor rows;  // [C, P]
  double scale = 1;
  double keep = 0;
  Columns columns{};
};

struct Activations;
class ConvolutionTrials;

/// A layer keeps these from forward to backward, or works in them: for C clients and batches of up
/// to B samples.
struct Saved {
  std::vector<Tensor> per_client;   // each [C, ...]
  std::vector<Tensor> per_sample;   // each [C, B, ...]
  std::vector<Activations> chains;  // of a layer that is made of layers
  std::vector<Tensor> shared{};     // the same for every part: small tables on a device

  /// Views clients [first, first + count) and the first `batch` samples of each.
  Saved narrow(std::int64_t first, std::int64_t count, std::int64_t batch) const;
};

/// Values and gradients between the layers of a chain for C clients and batches of up to B samples.
/// Element l is the input of layer l, the last one the chain's output (logits). A layer that works
/// in place shares both. Gradients (in evaluation values, too) take turns in two buffers.
struct Activations {
  std::vector<Tensor> values;     // each [C, B, width]
  std::vector<Tensor> gradients;  // each [C, B, width]; undefined for the input and in evaluation
  std::vector<Saved> saved;       // of layer l
  Use use = Use::Training;
  Arithmetic arithmetic{};
  ConvolutionTrials* convolutions = nullptr;  // of a device, the model's; null: none is tried

  const Tensor& input() const { return values.front(); }             // [C, B, D]
  const Tensor& logits() const { return values.back(); }             // [C, B, K]
  const Tensor& logit_gradient() const { return gradients.back(); }  // [C, B, K]
  /// Views clients [first, first + count) and the first `batch` samples of each.
  Activations narrow(std::int64_t first, std::int64_t count, std::int64_t batch) const;
  std::int64_t bytes() const;
};

/// A call of a layer works with these beside its input and output.
struct Pass {
  const Tensor& weights;  // [C, P]
  const Saved& saved;     // as make_saved gave it, or a part
  Use use;
  Arithmetic arithmetic{};
  ConvolutionTrials* convolutions = nullptr;
};

/// Computes a function of stacked weights and stacked inputs with explicit forward and backward. A
/// layer reads its parameters from its own columns of the rows [C, P] (a stride of 0 gives every
/// client the same row). It keeps no state between calls but in `Saved`. The last dimension of
/// every tensor is contiguous.
class Layer {
 public:
  virtual ~Layer() = default;

  /// Returns the values per sample after this layer, given those before it.
  virtual std::int64_t output_features(std::int64_t input_features) const = 0;
  /// Appends the layer's parameters and buffers to the layout and remembers their columns.
  virtual void declare(Layout& layout) = 0;
  /// True if output and input (and their gradients) may share memory.
  virtual bool in_place() const { return false; }
  /// The multiplications and additions of one forward pass for one sample.
  virtual double forward_flops() const = 0;
  /// Allocates memory for C clients and up to B samples, for activations of this type and device.
  virtual Saved make_saved(std::int64_t /*clients*/, std::int64_t /*batch*/,
                           const at::TensorOptions& /*options*/, Use /*use*/) const {
    return {};
  }

  /// Moves the buffers in pass.weights when training (batch-norm statistics).
  virtual void forward(const Pass& pass,
                       const Tensor& input,              // [C, B, in]
                       const Tensor& output) const = 0;  // [C, B, out]

  /// `input_gradient` is undefined for a layer whose input needs none. Reads the weights
  /// before it writes the sink, which may be the weights themselves. Leaves output_gradient as it
  /// is unless the layer works in place.
  virtual void backward(const Pass& pass, const Tensor& input, const Tensor& output,
                        const Tensor& output_gradient, const Tensor& input_gradient,
                        const GradientSink& sink) const = 0;
};

enum class Bias { None, Use };

/// The tags of the columns of every weight and every bias.
constexpr Tag kWeightTags = Tag::Trainable;
constexpr Tag kBiasTags = Tag::Trainable | Tag::Uncompressed | Tag::Bias;

/// y = x W^T + b with W [out, in], b [out] (PyTorch's Linear): fields NAME.weight and, unless
/// there is none, NAME.bias.
class Linear final : public Layer {
 public:
  Linear(std::string name, std::int64_t in, std::int64_t out, Tag tags, Bias bias = Bias::Use);

  std::int64_t output_features(std::int64_t input_features) const override;
  void declare(Layout& layout) override;
  double forward_flops() const override { return 2.0 * static_cast<double>(in_ * out_); }
  void forward(const Pass& pass, const Tensor& input, const Tensor& output) const override;
  void backward(const Pass& pass, const Tensor& input, const Tensor& output,
                const Tensor& output_gradient, const Tensor& input_gradient,
                const GradientSink& sink) const override;

 private:
  std::string name_;
  std::int64_t in_;
  std::int64_t out_;
  Tag tags_;
  Bias bias_;
  std::int64_t weight_column_ = 0;
  std::int64_t bias_column_ = 0;
};

/// y = max(x, 0); the gradient at 0 is 0, as in PyTorch.
class Relu final : public Layer {
 public:
  enum class Memory { Shared, Own };

  /// Shared: in place. Own: for an output that something else changes before backward.
  explicit Relu(Memory memory = Memory::Shared) : memory_(memory) {}

  std::int64_t output_features(std::int64_t input_features) const override {
    return input_features;
  }
  void declare(Layout&) override {}
  bool in_place() const override { return memory_ == Memory::Shared; }
  double forward_flops() const override { return 0; }
  void forward(const Pass& pass, const Tensor& input, const Tensor& output) const override;
  void backward(const Pass& pass, const Tensor& input, const Tensor& output,
                const Tensor& output_gradient, const Tensor& input_gradient,
                const GradientSink& sink) const override;

 private:
  Memory memory_;
};

}  // namespace fedhpc
