#include "fedhpc/models/model.hpp"

#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/core/rng.hpp"

namespace fedhpc {

Activations Activations::narrow(std::int64_t first, std::int64_t count, std::int64_t batch) const {
  const auto part = [&](const std::vector<Tensor>& whole) {
    std::vector<Tensor> views;
    views.reserve(whole.size());
    for (const Tensor& tensor : whole) {
      views.push_back(tensor.defined() ? tensor.narrow(0, first, count).narrow(1, 0, batch)
                                       : tensor);
    }
    return views;
  };
  return {part(values), part(gradients)};
}

std::int64_t Activations::bytes() const {
  std::int64_t total = 0;
  for (const auto* tensors : {&values, &gradients}) {
    const void* previous = nullptr;  // neighbours may share memory
    for (const Tensor& tensor : *tensors) {
      if (!tensor.defined() || tensor.data_ptr() == previous) continue;
      previous = tensor.data_ptr();
      total += static_cast<std::int64_t>(tensor.nbytes());
    }
  }
  return total;
}

Model::Model(std::int64_t features, std::vector<std::unique_ptr<Layer>> layers)
    : layers_(std::move(layers)), widths_{features} {
  auto layout = std::make_shared<Layout>();
  for (const auto& layer : layers_) {
    widths_.push_back(layer->output_features(widths_.back()));
    layer->declare(*layout);
  }
  layout_ = std::move(layout);
}

double Model::forward_flops() const {
  double flops = 0;
  for (const auto& layer : layers_) flops += layer->forward_flops();
  return flops;
}

Activations Model::make_activations(std::int64_t clients, std::int64_t batch, at::ScalarType type,
                                    Use use) const {
  const auto fresh = [&](std::size_t l) {
    return at::empty({clients, batch, widths_[l]}, at::TensorOptions().dtype(type));
  };
  Activations activations;
  activations.values.push_back(fresh(0));
  activations.gradients.emplace_back();
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const bool shared = layers_[l]->in_place();
    activations.values.push_back(shared ? activations.values.back() : fresh(l + 1));
    if (use == Use::Evaluation) {
      activations.gradients.emplace_back();
    } else {
      const bool shares_gradient = shared && activations.gradients.back().defined();
      activations.gradients.push_back(shares_gradient ? activations.gradients.back()
                                                      : fresh(l + 1));
    }
  }
  return activations;
}

void Model::forward(const Tensor& weights, const Activations& activations) const {
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    layers_[l]->forward(weights, activations.values[l], activations.values[l + 1]);
  }
}

void Model::backward(const Tensor& weights, const Activations& activations,
                     const GradientSink& sink) const {
  for (std::size_t l = layers_.size(); l-- > 0;) {
    layers_[l]->backward(weights, activations.values[l], activations.values[l + 1],
                         activations.gradients[l + 1], activations.gradients[l], sink);
  }
}

Tensor initial_row(const Layout& layout, std::uint64_t seed, at::ScalarType type) {
  Tensor row = at::zeros({1, layout.size()}, at::kDouble);
  auto* values = row.data_ptr<double>();
  for (std::size_t index = 0; index < layout.fields().size(); ++index) {
    const Field& field = layout.fields()[index];
    const double bound = 1.0 / std::sqrt(static_cast<double>(field.fan_in));
    Draws draws({.seed = seed, .purpose = Purpose::Init, .client = index});
    for (std::int64_t i = 0; i < field.size; ++i) {
      values[field.offset + i] = bound * (2.0 * draws.uniform() - 1.0);
    }
  }
  return row.to(type);
}

}  // namespace fedhpc
