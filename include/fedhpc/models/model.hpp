#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fedhpc/core/registry.hpp"
#include "fedhpc/models/chain.hpp"
#include "fedhpc/models/layout.hpp"
#include "fedhpc/models/options.hpp"

namespace fedhpc {

/// Runs a chain of layers over the rows of one layout: written once, in full weights, for any
/// number of clients at a time.
class Model {
 public:
  explicit Model(Chain chain);

  const LayoutPtr& layout() const { return layout_; }
  std::int64_t features() const { return chain_.input_features(); }  ///< D
  std::int64_t classes() const { return chain_.output_features(); }  ///< K
  /// Multiplications and additions of a forward pass for one sample; backward costs about twice.
  double forward_flops() const { return chain_.forward_flops(); }

  /// `options` gives number type and device, those of the weights.
  Activations make_activations(std::int64_t clients, std::int64_t batch,
                               const at::TensorOptions& options, Use use,
                               const Arithmetic& arithmetic = {}) const;
  /// Goes from activations.input() to activations.logits(). Activations made for training use the
  /// batch's statistics in batch norm and move the running ones in `weights`. Those made for
  /// evaluation use the running ones.
  void forward(const Tensor& weights, const Activations& activations) const {
    chain_.forward(weights, activations);
  }
  /// Goes from activations.logit_gradient() to the sink, after forward on the same activations.
  void backward(const Tensor& weights, const Activations& activations,
                const GradientSink& sink) const {
    chain_.backward(weights, activations, sink);
  }

  /// E, the values of a sample that the head sees.
  std::int64_t embedding_size() const { return chain_.width_before(head_); }
  /// The values that the head sees after a forward pass, [C, B, E].
  const Tensor& embedding(const Activations& activations) const {
    return activations.values[head_];
  }
  /// Their gradient, [C, B, E]; undefined where nothing lies below the head.
  const Tensor& embedding_gradient(const Activations& activations) const {
    return activations.gradients[head_];
  }
  /// Goes from embedding_gradient() to the sink, which takes nothing of the head.
  void backward_below_head(const Tensor& weights, const Activations& activations,
                           const GradientSink& sink) const {
    chain_.backward(weights, activations, sink, head_);
  }

 private:
  Chain chain_;
  LayoutPtr layout_;
  std::shared_ptr<ConvolutionTrials> convolutions_;  // of all its layers
  std::size_t head_ = 0;                             // the layer
};

/// Builds `model.name` for samples of `shape` and K classes. Throws ConfigError for a model that
/// does not fit the data.
std::unique_ptr<Model> make_model(const ModelOptions& options,
                                  const std::vector<std::int64_t>& shape, std::int64_t classes);

/// Every model family: model.name.
using MakeModel = std::unique_ptr<Model>(const ModelOptions& options,
                                         const std::vector<std::int64_t>& shape,
                                         std::int64_t classes);
Registry<MakeModel>& model_registry();

/// Draws initial weights [1, P] by `rule` (see InitRule). Each field is drawn in float64 with key
/// (seed, Purpose::Init, client = index of the field) and rounded to `type`.
Tensor initial_row(const Layout& layout, std::uint64_t seed, at::ScalarType type,
                   InitRule rule = InitRule::Torch);

}  // namespace fedhpc
