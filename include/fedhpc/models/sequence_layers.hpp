#pragma once

#include <cstdint>
#include <vector>

#include "fedhpc/models/layer.hpp"

namespace fedhpc {

enum class Cell { Lstm, Gru };
enum class Direction { Forward, Reverse };

/// One direction of a recurrent layer, from zeros (PyTorch's LSTM and GRU): the input [places, in]
/// becomes the hidden values [places, hidden] of all places. Parameters weight_ih_l0 [G hidden,
/// in], weight_hh_l0 [G hidden, hidden] and, unless there are none, bias_ih_l0 and bias_hh_l0,
/// drawn as PyTorch does.
/// Lstm: G = 4 gates i, f, g, o; c = s(f) c_before + s(i) tanh(g), h = s(o) tanh(c).
/// Gru: G = 3 gates r, z, n; n = tanh(n_x + s(r) n_h), h = (1 - s(z)) n + s(z) h_before.
class Recurrent final : public Layer {
 public:
  struct Sizes {
    std::int64_t places = 0;
    std::int64_t in = 0;
    std::int64_t hidden = 0;
  };

  Recurrent(ParameterNames names, Cell cell, const Sizes& sizes, Direction direction, Bias bias,
            Tag tags = Tag::None);

  std::int64_t output_features() const override { return sizes_.places * sizes_.hidden; }
  bool reads_output() const override { return true; }
  void declare(Layout& layout) override;
  double forward_flops() const override;
  Saved make_saved(std::int64_t clients, std::int64_t batch, const at::TensorOptions& options,
                   Use use) const override;
  void forward(const Pass& pass, Stacks inputs, const Tensor& output) const override;
  void backward(const Pass& pass, Stacks inputs, const Tensor& output,
                const Tensor& output_gradient, Stacks input_gradients,
                const GradientSink& sink) const override;

 private:
  struct Block;

  std::int64_t gates() const { return (cell_ == Cell::Lstm ? 4 : 3) * sizes_.hidden; }
  /// The place of step s, and that of the step before it.
  std::int64_t place(std::int64_t s) const {
    return direction_ == Direction::Forward ? s : sizes_.places - 1 - s;
  }
  void start(const Tensor& shares, const Tensor& weights, std::int64_t bias_column) const;
  void forward(const Block& block) const;
  void go_back(const Block& block) const;
  void give_gradients(const Block& block, const GradientSink& sink) const;

  ParameterNames names_;
  Cell cell_;
  Sizes sizes_;
  Direction direction_;
  Bias bias_;
  Tag tags_;
  std::int64_t input_weight_ = 0;  // first columns
  std::int64_t hidden_weight_ = 0;
  std::int64_t input_bias_ = 0;
  std::int64_t hidden_bias_ = 0;
};

/// Scaled dot-product attention: softmax(scale q k^T + mask) v for each of `heads` matrices q
/// [queries, width], k [keys, width] and v [keys, values] of a sample. Inputs q, k, v and, where
/// there is a mask, its numbers. A query that sees no key gives zeros.
class Attention final : public Layer {
 public:
  enum class Mask { None, OfAllHeads, OfEachHead };  ///< [queries, keys], [heads, queries, keys]
  struct Sizes {
    std::int64_t heads = 0;
    std::int64_t queries = 0;
    std::int64_t keys = 0;
    std::int64_t width = 0;
    std::int64_t values = 0;
  };
  struct Settings {
    double scale = 1;
    bool causal = false;  ///< query l sees the keys 0 ... l
    Mask mask = Mask::None;
    double dropout = 0;       ///< the probability that a weight is 0 when training
    std::int64_t number = 0;  ///< of the layer, for its draws
  };

  Attention(const Sizes& sizes, const Settings& settings) : sizes_(sizes), settings_(settings) {}

  std::int64_t output_features() const override {
    return sizes_.heads * sizes_.queries * sizes_.values;
  }
  bool draws() const override { return settings_.dropout > 0; }
  double forward_flops() const override;
  Saved make_saved(std::int64_t clients, std::int64_t batch, const at::TensorOptions& options,
                   Use use) const override;
  void forward(const Pass& pass, Stacks inputs, const Tensor& output) const override;
  void backward(const Pass& pass, Stacks inputs, const Tensor& output,
                const Tensor& output_gradient, Stacks input_gradients,
                const GradientSink& sink) const override;

 private:
  bool drops(const Pass& pass) const { return draws() && pass.use == Use::Training; }
  void weigh(const Tensor& scores, const Tensor& mask, const Saved& saved) const;
  void weigh_back(const Tensor& weights, const Tensor& dropped, const Tensor& factors,
                  const Tensor& gradient) const;
  void draw_factors(const Pass& pass) const;
  void multiply_transposed(const Pass& pass, double scale, const Tensor& a, const Tensor& b,
                           std::int64_t inner, const Tensor& to) const;
  std::int64_t scores() const { return sizes_.heads * sizes_.queries * sizes_.keys; }

  Sizes sizes_;
  Settings settings_;
};

}  // namespace fedhpc
