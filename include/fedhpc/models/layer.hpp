#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fedhpc/core/context.hpp"
#include "fedhpc/core/rng.hpp"
#include "fedhpc/models/layout.hpp"
#include "fedhpc/models/then.hpp"

namespace fedhpc {

enum class Use { Training, Evaluation };

/// A step of plain SGD with a pull towards centres, w <- w - lr (g + mu (w - c)). A layer may take
/// it as it computes g, which then comes to no memory.
struct PulledStep {
  Tensor centres;  // [C, P]
  double lr = 0;
  double mu = 0;
  ColumnRanges taken{};  ///< where layers have taken it
};

/// Takes weight gradients: rows = keep * rows + scale * gradient, column by column. An arena takes
/// {arena, 1, 0}; plain SGD is fused into the gradient products by {weights, -lr, 1}. Buffers have
/// no gradient: their columns stay as they are, and so do those not in `columns`.
struct GradientSink {
  Tensor rows;  // [C, P]
  double scale = 1;
  double keep = 0;
  Columns columns{};
  PulledStep* step = nullptr;  ///< a layer may move its weights by it and leave the rows alone
};

class ConvolutionTrials;

/// A layer keeps these from forward to backward, or works in them: for C clients and batches of up
/// to B samples.
struct Saved {
  std::vector<Tensor> per_client{};          // each [C, ...]
  std::vector<Tensor> per_sample{};          // each [C, B, ...]
  std::vector<Tensor> shared{};              // the same for every part: small tables on a device
  std::vector<std::shared_ptr<void>> own{};  // [C] in a form of the layer's own
  std::shared_ptr<void> of_part{};           // likewise, of the part that is between both

  /// Views clients [first, first + count) and the first `batch` samples of each.
  Saved narrow(std::int64_t first, std::int64_t count, std::int64_t batch) const;
};

/// Names the random numbers of one pass through the layers, for the clients of a stack. They do not
/// depend on which clients stand beside each other, nor on ranks (docs/semantics.md, 1).
struct LayerDraws {
  std::uint64_t seed = 0;
  std::int64_t round = 0;
  std::int64_t pass = 0;
  std::int64_t step = 0;
  std::int64_t call = 0;                    ///< the gradients of a step are counted from 0
  std::span<const std::int64_t> clients{};  ///< ids, [C]

  /// Those of clients [first, first + count).
  LayerDraws of_clients(std::int64_t first, std::int64_t count) const;
  static constexpr std::size_t kMostLayers = std::size_t{1} << 16;
  /// The draws of the stack's client c in layer `layer`, a number below kMostLayers and its own.
  DrawKey key(std::int64_t c, std::int64_t layer) const;
};

/// A call of a layer works with these beside its inputs and output.
struct Pass {
  const Tensor& weights;  // [C, P]
  const Saved& saved;     // as make_saved gave it, or a part
  Use use;
  Arithmetic arithmetic{};
  ConvolutionTrials* convolutions = nullptr;
  LayerDraws draws{};  // when training
};

/// Stacks, one for each input of a layer.
using Stacks = std::span<const Tensor>;

/// The channels of the images that a layer takes and gives by channels, where a device has them: as
/// views [C, B, channels, places] of memory [C, channels, B, places], the order of a convolution's
/// products. 0: sample after sample only.
struct ByChannels {
  std::int64_t taken = 0;
  std::int64_t given = 0;
};

/// Computes a function of stacked weights and stacked inputs with explicit forward and backward. A
/// layer reads its parameters from its own columns of the rows [C, P] (a stride of 0 gives every
/// client the same row). It keeps no state between calls but in `Saved`. The last dimension of
/// every tensor is contiguous, and samples of a client lie one after the other without a gap,
/// unless the tensor is one of images by channels.
class Layer {
 public:
  virtual ~Layer() = default;

  /// The values per sample after this layer.
  virtual std::int64_t output_features() const = 0;
  /// Appends the layer's parameters and buffers to the layout and remembers their columns.
  virtual void declare(Layout& /*layout*/) {}
  /// True if the output may share the memory of the first input, and so may their gradients.
  virtual bool in_place() const { return false; }
  /// True if backward reads the output, or what the memory of a layer in place holds.
  virtual bool reads_output() const { return false; }
  /// True if backward changes output_gradient, though the layer does not work in place.
  virtual bool changes_output_gradient() const { return false; }
  /// True for a sum of the inputs: each input's gradient is the output's. Nobody calls backward.
  virtual bool is_sum() const { return false; }
  /// True for a network in one piece, within which nobody else can tell the head from the rest.
  virtual bool is_whole_network() const { return false; }
  /// The images that may lie by channels; the others, and those that may, may lie sample by sample.
  virtual ByChannels by_channels() const { return {}; }
  /// True if a value depends on the inputs' values in its place alone, in whatever order all lie.
  virtual bool is_elementwise() const { return false; }
  /// True if the layer draws random numbers when training.
  virtual bool draws() const { return false; }
  /// The multiplications and additions of one forward pass for one sample.
  virtual double forward_flops() const { return 0; }
  /// Allocates memory for C clients and up to B samples, for activations of this type and device.
  virtual Saved make_saved(std::int64_t /*clients*/, std::int64_t /*batch*/,
                           const at::TensorOptions& /*options*/, Use /*use*/) const {
    return {};
  }

  /// Moves the buffers in pass.weights when training (batch-norm statistics).
  virtual void forward(const Pass& pass,
                       Stacks inputs,                    // each [C, B, its features]
                       const Tensor& output) const = 0;  // [C, B, output_features()]

  /// Writes the gradients of the inputs. One is undefined where nobody needs it; two inputs that
  /// are one value have each their own. Reads the weights before it writes the sink, which may be
  /// the weights themselves. Leaves output_gradient as it is unless the layer works in place or
  /// says otherwise.
  virtual void backward(const Pass& pass, Stacks inputs, const Tensor& output,
                        const Tensor& output_gradient, Stacks input_gradients,
                        const GradientSink& sink) const = 0;
};

/// The names of a layer's parameters: MODULE.weight, MODULE.bias and so on, or each its own.
class ParameterNames {
 public:
  ParameterNames(const char* module) : module_(module) {}             // NOLINT
  ParameterNames(std::string module) : module_(std::move(module)) {}  // NOLINT
  explicit ParameterNames(std::vector<std::string> each) : each_(std::move(each)) {}

  /// The name of the layer's parameter number `index`, which PyTorch's modules call `what`.
  std::string of(std::size_t index, std::string_view what) const;

 private:
  std::string module_;
  std::vector<std::string> each_;
};

enum class Bias { None, Use };

/// The tags of the columns of every weight, every bias, and the scales and shifts of a norm.
constexpr Tag kWeightTags = Tag::Trainable;
constexpr Tag kBiasTags = Tag::Trainable | Tag::Uncompressed | Tag::Bias;
constexpr Tag kScaleTags = Tag::Trainable | Tag::Norm | Tag::Uncompressed;
/// Those of numbers that are no factor of a product: embeddings, parameters that stand alone.
constexpr Tag kTableTags = Tag::Trainable | Tag::Uncompressed;
/// Whether a parameter of this name within its module is a bias of PyTorch's.
constexpr bool is_bias(std::string_view name) { return name == "bias" || name == "in_proj_bias"; }

/// y = x W^T + b with W [out, in], b [out] (PyTorch's Linear), at each of `places` places of a
/// sample [places, in]: parameters weight and, unless there is none, bias. A ReLU that follows may
/// be part of it: on a device one kernel adds the bias and takes the maximum, one goes back.
class Linear final : public Layer {
 public:
  Linear(ParameterNames names, std::int64_t in, std::int64_t out, Tag tags, Bias bias = Bias::Use,
         std::int64_t places = 1, Then then = Then::Nothing);

  std::int64_t output_features() const override { return places_ * out_; }
  bool reads_output() const override { return then_ == Then::Relu; }
  bool changes_output_gradient() const override { return then_ == Then::Relu; }
  void declare(Layout& layout) override;
  double forward_flops() const override { return 2.0 * static_cast<double>(places_ * in_ * out_); }
  void forward(const Pass& pass, Stacks inputs, const Tensor& output) const override;
  void backward(const Pass& pass, Stacks inputs, const Tensor& output,
                const Tensor& output_gradient, Stacks input_gradients,
                const GradientSink& sink) const override;

 private:
  Tensor at_places(const Tensor& stack, std::int64_t features) const;

  ParameterNames names_;
  std::int64_t in_;
  std::int64_t out_;
  Tag tags_;
  Bias bias_;
  std::int64_t places_;
  Then then_;
  std::int64_t weight_column_ = 0;
  std::int64_t bias_column_ = 0;
};

/// y = max(x, 0); the gradient at 0 is 0, as in PyTorch.
class Relu final : public Layer {
 public:
  explicit Relu(std::int64_t features) : features_(features) {}

  std::int64_t output_features() const override { return features_; }
  bool in_place() const override { return true; }
  bool reads_output() const override { return true; }
  bool is_elementwise() const override { return true; }
  void forward(const Pass& pass, Stacks inputs, const Tensor& output) const override;
  void backward(const Pass& pass, Stacks inputs, const Tensor& output,
                const Tensor& output_gradient, Stacks input_gradients,
                const GradientSink& sink) const override;

 private:
  std::int64_t features_;
};

/// The sum of two or more inputs.
class Sum final : public Layer {
 public:
  explicit Sum(std::int64_t features) : features_(features) {}

  std::int64_t output_features() const override { return features_; }
  bool in_place() const override { return true; }
  bool is_sum() const override { return true; }
  bool is_elementwise() const override { return true; }
  double forward_flops() const override { return static_cast<double>(features_); }
  void forward(const Pass& pass, Stacks inputs, const Tensor& output) const override;
  void backward(const Pass&, Stacks, const Tensor&, const Tensor&, Stacks,
                const GradientSink&) const override {}

 private:
  std::int64_t features_;
};

}  // namespace fedhpc
