#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fedhpc/models/layer.hpp"
#include "fedhpc/models/layout.hpp"
#include "fedhpc/models/options.hpp"

namespace fedhpc {

/// Values and gradients between the layers for C clients and batches of up to B samples. Element l
/// is the input of layer l, the last one the logits; a layer that works in place shares both.
struct Activations {
  std::vector<Tensor> values;     // each [C, B, width]
  std::vector<Tensor> gradients;  // each [C, B, width]; undefined for the input and in evaluation

  const Tensor& input() const { return values.front(); }             // [C, B, D]
  const Tensor& logits() const { return values.back(); }             // [C, B, K]
  const Tensor& logit_gradient() const { return gradients.back(); }  // [C, B, K]
  /// Views of clients [first, first + count) and the first `batch` samples of each.
  Activations narrow(std::int64_t first, std::int64_t count, std::int64_t batch) const;
  std::int64_t bytes() const;
};

enum class Use { Training, Evaluation };

/// A chain of layers over the rows of one layout: written once, in full weights, for any number of
/// clients at a time.
class Model {
 public:
  Model(std::int64_t features, std::vector<std::unique_ptr<Layer>> layers);

  const LayoutPtr& layout() const { return layout_; }
  std::int64_t features() const { return widths_.front(); }  ///< D
  std::int64_t classes() const { return widths_.back(); }    ///< K
  /// Multiplications and additions of a forward pass for one sample; backward costs about twice.
  double forward_flops() const;

  Activations make_activations(std::int64_t clients, std::int64_t batch, at::ScalarType type,
                               Use use) const;
  /// From activations.input() to activations.logits().
  void forward(const Tensor& weights, const Activations& activations) const;
  /// From activations.logit_gradient() to the sink. forward must have run on the same activations.
  void backward(const Tensor& weights, const Activations& activations,
                const GradientSink& sink) const;

 private:
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<std::int64_t> widths_;  // values per sample before layer l; the last one: logits
  LayoutPtr layout_;
};

/// Builds `model.name` for samples of `shape` and K classes. Throws ConfigError for a model that
/// does not fit the data.
std::unique_ptr<Model> make_model(const ModelOptions& options,
                                  const std::vector<std::int64_t>& shape, std::int64_t classes);

/// Name and one sentence of each model family, in order of the registry table.
const std::vector<std::pair<std::string, std::string>>& model_registry();

/// PyTorch's default initial weights: every parameter uniform in +-1/sqrt(fan_in), drawn in float64
/// with key (seed, Purpose::Init, client = index of the field) and rounded to `type`. One row [1,
/// P].
Tensor initial_row(const Layout& layout, std::uint64_t seed, at::ScalarType type);

}  // namespace fedhpc
