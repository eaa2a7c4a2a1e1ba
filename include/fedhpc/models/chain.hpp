#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fedhpc/models/layer.hpp"

namespace fedhpc {

/// Runs layers one after the other.
class Chain {
 public:
  /// The owner of a chain's input and output: its activations, or the layer the chain is a part of.
  /// Such a layer puts them into front() and back() of values and gradients for each call.
  enum class Ends { Own, Borrowed };

  explicit Chain(std::int64_t features) : widths_{features} {}

  void add(std::unique_ptr<Layer> layer);
  bool empty() const { return layers_.empty(); }
  std::int64_t input_features() const { return widths_.front(); }
  std::int64_t output_features() const { return widths_.back(); }
  void declare(Layout& layout);
  double forward_flops() const;

  /// `options` gives number type and device. Borrowed ends are undefined; next to them no layer
  /// works in place.
  Activations make_activations(std::int64_t clients, std::int64_t batch,
                               const at::TensorOptions& options, Use use, Ends ends) const;
  void forward(const Tensor& weights, const Activations& activations) const;
  /// Goes down to the input where its gradient is wanted, else to the first layer with a column in
  /// the sink.
  void backward(const Tensor& weights, const Activations& activations,
                const GradientSink& sink) const {
    backward(weights, activations, sink, layers_.size());
  }
  /// Goes down from the input of layer `top`.
  void backward(const Tensor& weights, const Activations& activations, const GradientSink& sink,
                std::size_t top) const;

  /// Returns the first layer that has a trainable column of these; the number of layers if none
  /// has. The chain must be declared.
  std::size_t first_layer_with(const Columns& columns) const;
  /// The values per sample before a layer.
  std::int64_t width_before(std::size_t layer) const { return widths_[layer]; }

 private:
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<std::vector<Tag>> tags_;  // of the fields of layer l, once declared
  std::vector<std::int64_t> widths_;    // values per sample before layer l; the last one: after all
};

}  // namespace fedhpc
