#include "fedhpc/models/model.hpp"

#include <cmath>

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

std::string ParameterNames::of(std::size_t index, std::string_view what) const {
  return module_.empty() ? each_.at(index) : concat(module_, '.', what);
}

namespace {

void draw(const Field& field, InitRule rule, Draws& draws, double* values) {
  const bool weight = field.shape.size() > 1;
  if (rule == InitRule::Torch || (rule == InitRule::KaimingOut && !weight)) {
    const double bound = 1.0 / std::sqrt(static_cast<double>(field.fan_in));
    for (std::int64_t i = 0; i < field.size; ++i) values[i] = bound * (2.0 * draws.uniform() - 1.0);
    return;
  }
  if (!weight) return;  // normal01: biases start at 0
  // fan_out of [out, in, kh, kw] is out kh kw: all values over the inputs
  const double fan_out = static_cast<double>(field.size / field.shape[1]);
  const double deviation = rule == InitRule::Normal01 ? 0.01 : std::sqrt(2.0 / fan_out);
  for (std::int64_t i = 0; i < field.size; ++i) values[i] = deviation * draws.normal();
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
    if (field.initial == Initial::Zero || field.initial == Initial::One) continue;
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
