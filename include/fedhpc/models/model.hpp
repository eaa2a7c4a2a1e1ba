#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fedhpc/core/registry.hpp"
#include "fedhpc/models/graph.hpp"
#include "fedhpc/models/layout.hpp"
#include "fedhpc/models/options.hpp"

namespace fedhpc {

/// One layer as its description has it.
struct LayerSummary {
  std::string op;
  std::string name;      ///< the place in the module, if it has one
  Shape shape;           ///< of its value for one sample
  std::size_t node = 0;  ///< of the graph; 0: computed with the layer before it, or not at all
  std::int64_t parameters = 0;  ///< and buffers
  double flops = 0;             ///< multiplications and additions of a forward pass for one sample
};

/// Runs a graph of layers over the rows of one layout: written once, in full weights, for any
/// number of clients at a time.
class Model {
 public:
  explicit Model(Graph graph, std::vector<LayerSummary> layers = {});

  const LayoutPtr& layout() const { return layout_; }
  /// The layers in order, of a model that was made of a description.
  const std::vector<LayerSummary>& layers() const { return layers_; }
  std::int64_t features() const { return graph_.input_features(); }  ///< D
  std::int64_t classes() const { return graph_.output_features(); }  ///< K
  /// The shape of what it gives for one sample, as its file has it: of K values in all.
  Shape output_shape() const { return layers_.empty() ? script_output_ : layers_.back().shape; }
  void set_output_shape(Shape shape) { script_output_ = std::move(shape); }
  /// Multiplications and additions of a forward pass for one sample; backward costs about twice.
  double forward_flops() const { return graph_.forward_flops(); }

  /// `options` gives number type and device, those of the weights.
  Activations make_activations(std::int64_t clients, std::int64_t batch,
                               const at::TensorOptions& options, Use use,
                               const Arithmetic& arithmetic = {}) const;
  /// So many bytes, 4 GiB at most, are for columns that convolutions on a device keep for their way back.
  void keep_columns(std::int64_t most);
  /// Goes from activations.input() to activations.logits(). Activations made for training use the
  /// batch's statistics in batch norm and move the running ones in `weights`. Those made for
  /// evaluation use the running ones.
  void forward(const Tensor& weights, const Activations& activations) const {
    graph_.forward(weights, activations);
  }
  /// Goes from activations.logit_gradient() to the sink, after forward on the same activations.
  void backward(const Tensor& weights, const Activations& activations,
                const GradientSink& sink) const {
    graph_.backward(weights, activations, sink);
  }

  /// The weights that the model's file holds, [1, P] float64; undefined for a model that is drawn.
  const Tensor& weights_of_file() const { return weights_of_file_; }
  void set_weights_of_file(Tensor row) { weights_of_file_ = std::move(row); }

  /// Whether layers draw random numbers when they train.
  bool draws() const { return graph_.draws(); }

  /// Whether the head sees the values of one layer, and nothing goes around it.
  bool has_embedding() const {
    return graph_.is_cut(head_) && !graph_.layer(head_).is_whole_network();
  }
  /// E, the values of a sample that the head sees. Precondition: has_embedding().
  std::int64_t embedding_size() const { return graph_.width_of(below_head()); }
  /// The values that the head sees after a forward pass, [C, B, E].
  const Tensor& embedding(const Activations& activations) const {
    return activations.values[below_head()];
  }
  /// Their gradient, [C, B, E]; undefined where nothing lies below the head.
  const Tensor& embedding_gradient(const Activations& activations) const {
    return activations.gradients[below_head()];
  }
  /// Goes from activations.logit_gradient() to embedding_gradient() and what the sink takes of the
  /// head. With backward_below_head() behind it that is backward(), to the last bit.
  void backward_head(const Tensor& weights, const Activations& activations,
                     const GradientSink& sink) const {
    graph_.backward(weights, activations, sink, graph_.size(), head_);
  }
  /// Goes from embedding_gradient() to the sink, which takes nothing of the head.
  void backward_below_head(const Tensor& weights, const Activations& activations,
                           const GradientSink& sink) const {
    graph_.backward(weights, activations, sink, head_);
  }

 private:
  std::size_t below_head() const { return graph_.inputs_of(head_).front(); }

  Graph graph_;
  std::vector<LayerSummary> layers_;
  LayoutPtr layout_;
  std::shared_ptr<ConvolutionTrials> convolutions_;  // of all its layers
  std::size_t head_ = 0;                             // the node
  Tensor weights_of_file_;
  Shape script_output_;
};

/// What a model tells of a sample: values for K classes at each of some places. Most have one place,
/// and one model has as many outputs as all values together.
struct Outputs {
  Outputs(std::int64_t of_classes, std::int64_t at_places = 1)  // NOLINT
      : classes(of_classes), places(at_places) {}
  operator std::int64_t() const { return classes * places; }  // NOLINT

  std::int64_t classes;
  std::int64_t places;
};

/// Builds `model.name` for samples of `shape`. Throws ConfigError for a model that does not fit the
/// data.
std::unique_ptr<Model> make_model(const ModelOptions& options,
                                  const std::vector<std::int64_t>& shape, const Outputs& outputs);

/// Every model family: model.name.
using MakeModel = std::unique_ptr<Model>(const ModelOptions& options,
                                         const std::vector<std::int64_t>& shape,
                                         const Outputs& outputs);
Registry<MakeModel>& model_registry();

/// Draws initial weights [1, P] by `rule` (see InitRule). Each field is drawn in float64 with key
/// (seed, Purpose::Init, client = index of the field) and rounded to `type`.
Tensor initial_row(const Layout& layout, std::uint64_t seed, at::ScalarType type,
                   InitRule rule = InitRule::Torch);

}  // namespace fedhpc
