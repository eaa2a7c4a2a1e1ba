#include <ATen/ops/empty.h>

#include "fedhpc/models/image_layers.hpp"

namespace fedhpc {

namespace {

/// Activations of an inner chain with the ends of this call in place.
Activations between(const Activations& inner, const Pass& pass, const Tensor& input,
                    const Tensor& output, const Tensor& input_gradient,
                    const Tensor& output_gradient) {
  Activations chain = inner;
  chain.arithmetic = pass.arithmetic;
  chain.convolutions = pass.convolutions;
  chain.values.front() = input;
  chain.values.back() = output;
  chain.gradients.front() = input_gradient;
  chain.gradients.back() = output_gradient;
  return chain;
}

}  // namespace

Residual::Residual(Chain body, Chain shortcut)
    : body_(std::move(body)), shortcut_(std::move(shortcut)) {
  require(!body_.empty() && body_.input_features() == shortcut_.input_features() &&
              body_.output_features() == shortcut_.output_features(),
          "both ways of a residual sum lead from the same input to outputs of one size");
}

std::int64_t Residual::output_features(std::int64_t input_features) const {
  require(input_features == body_.input_features(), "a residual sum gets the input of its ways");
  return body_.output_features();
}

void Residual::declare(Layout& layout) {
  body_.declare(layout);
  shortcut_.declare(layout);
}

double Residual::forward_flops() const {
  return body_.forward_flops() + shortcut_.forward_flops() +
         static_cast<double>(body_.output_features());
}

Saved Residual::make_saved(std::int64_t clients, std::int64_t batch,
                           const at::TensorOptions& options, Use use) const {
  const auto ends = Chain::Ends::Borrowed;
  Saved saved;
  saved.chains.push_back(body_.make_activations(clients, batch, options, use, ends));
  if (shortcut_.empty()) return saved;
  saved.chains.push_back(shortcut_.make_activations(clients, batch, options, use, ends));
  saved.per_sample.push_back(at::empty({clients, batch, shortcut_.output_features()}, options));
  if (use == Use::Training) {
    saved.per_sample.push_back(at::empty({clients, batch, shortcut_.input_features()}, options));
  }
  return saved;
}

void Residual::forward(const Pass& pass, const Tensor& input, const Tensor& output) const {
  body_.forward(pass.weights, between(pass.saved.chains[0], pass, input, output, {}, {}));
  if (shortcut_.empty()) {
    output.add_(input);
    return;
  }
  const Tensor& other = pass.saved.per_sample[0];
  shortcut_.forward(pass.weights, between(pass.saved.chains[1], pass, input, other, {}, {}));
  output.add_(other);
}

void Residual::backward(const Pass& pass, const Tensor& input, const Tensor& output,
                        const Tensor& output_gradient, const Tensor& input_gradient,
                        const GradientSink& sink) const {
  // No layer at the end of the body reads its output, which is now the sum.
  body_.backward(
      pass.weights,
      between(pass.saved.chains[0], pass, input, output, input_gradient, output_gradient), sink);
  if (shortcut_.empty()) {
    if (input_gradient.defined()) input_gradient.add_(output_gradient);
    return;
  }
  const Tensor other = input_gradient.defined() ? pass.saved.per_sample[1] : input_gradient;
  shortcut_.backward(
      pass.weights,
      between(pass.saved.chains[1], pass, input, pass.saved.per_sample[0], other, output_gradient),
      sink);
  if (input_gradient.defined()) input_gradient.add_(other);
}

}  // namespace fedhpc
