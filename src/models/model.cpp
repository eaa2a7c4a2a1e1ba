#include "fedhpc/models/model.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/core/rng.hpp"

#include "models/convolution_choice.hpp"

namespace fedhpc {

Model::Model(Graph graph, std::vector<LayerSummary> layers)
    : graph_(std::move(graph)),
      layers_(std::move(layers)),
      convolutions_(std::make_shared<ConvolutionTrials>()) {
  auto layout = std::make_shared<Layout>();
  graph_.declare(*layout);
  layout_ = std::move(layout);
  for (LayerSummary& one : layers_) {
    if (one.node == 0) continue;
    one.parameters = graph_.columns_of(one.node);
    one.flops = graph_.layer(one.node).forward_flops();
  }
  head_ = graph_.first_node_with({.with = Tag::Head});
}

Activations Model::make_activations(std::int64_t clients, std::int64_t batch,
                                    const at::TensorOptions& options, Use use,
                                    const Arithmetic& arithmetic) const {
  Activations made = graph_.make_activations(clients, batch, options, use,
                                             has_embedding() ? below_head() : graph_.last());
  made.arithmetic = arithmetic;
  made.convolutions = convolutions_.get();
  return made;
}

void Model::keep_columns(std::int64_t most) {
  convolutions_->kept_bytes()->most = std::min(most, kKeptBytes);
}

std::string ParameterNames::of(std::size_t index, std::string_view what) const {
  return module_.empty() ? each_.at(index) : concat(module_, '.', what);
}

namespace {

/// Makes a drawn matrix one with orthonormal rows, or columns where these are fewer: the factor Q
/// of its QR decomposition, with the signs that make R's diagonal positive (Saxe et al., ICLR 2014).
void make_orthogonal(std::int64_t rows, std::int64_t columns, double* values) {
  const Tensor matrix = at::from_blob(values, {rows, columns}, at::kDouble);
  const bool wide = rows < columns;
  auto [q, r] = at::linalg_qr(wide ? matrix.t() : matrix);
  q.mul_(r.diagonal().sign());
  matrix.copy_(wide ? q.t() : q);
}

void draw(const Field& field, InitRule rule, Draws& draws, double* values) {
  const bool weight = field.shape.size() > 1;
  const bool drops_biases = rule == InitRule::Normal01 || rule == InitRule::Keras;
  if (!weight && drops_biases) return;
  // fan_out of [out, in, kh, kw] is out kh kw: all values over the inputs
  const double fan_out = weight ? static_cast<double>(field.size / field.shape[1]) : 0;
  const auto uniform = [&](double bound) {
    for (std::int64_t i = 0; i < field.size; ++i) values[i] = bound * (2.0 * draws.uniform() - 1.0);
  };
  const auto normal = [&](double deviation) {
    for (std::int64_t i = 0; i < field.size; ++i) values[i] = deviation * draws.normal();
  };
  if (!weight || rule == InitRule::Auto || rule == InitRule::Torch) {
    return uniform(1.0 / std::sqrt(static_cast<double>(field.fan_in)));
  }
  if (rule == InitRule::Xavier || rule == InitRule::Keras) {
    // Not field.fan_in: torch's bound for all weights of a recurrent layer is that of its units.
    const auto fan_in = static_cast<double>(field.size / field.shape.front());
    return uniform(std::sqrt(6.0 / (fan_in + fan_out)));
  }
  if (rule == InitRule::Normal01) return normal(0.01);
  if (rule == InitRule::KaimingOut) return normal(std::sqrt(2.0 / fan_out));
  normal(1);
  make_orthogonal(field.shape.front(), field.size / field.shape.front(), values);
}

/// Normals as in PyTorch, whatever the fans are.
void draw_embedding(const Field& field, InitRule rule, Draws& draws, double* values) {
  const double deviation = rule == InitRule::Normal01 ? 0.01 : 1;
  for (std::int64_t i = 0; i < field.size; ++i) values[i] = deviation * draws.normal();
  const std::int64_t columns = field.shape[1];
  if (field.zero_row >= 0) std::fill_n(values + field.zero_row * columns, columns, 0.0);
}

}  // namespace

Tensor initial_row(const Layout& layout, std::uint64_t seed, at::ScalarType type, InitRule rule) {
  Tensor row = at::zeros({1, layout.size()}, at::kDouble);
  for (std::size_t index = 0; index < layout.fields().size(); ++index) {
    const Field& field = layout.fields()[index];
    double* values = row.data_ptr<double>() + field.offset;
    if (field.initial == Initial::One) std::fill_n(values, field.size, 1.0);
    if (field.initial != Initial::Drawn && field.initial != Initial::Embedding) continue;
    Draws draws({.seed = seed, .purpose = Purpose::Init, .client = index});
    if (field.initial == Initial::Embedding) {
      draw_embedding(field, rule, draws, values);
    } else {
      draw(field, rule, draws, values);
    }
  }
  return row.to(type);
}

}  // namespace fedhpc
