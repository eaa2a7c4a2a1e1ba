#include <ATen/TensorOperators.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/where.h>

#include "fedhpc/models/sample_norm.hpp"

// On a device, by ATen's operators: they normalise, parameters of each client come after.

namespace fedhpc {

namespace {

/// out = keep out + scale gradient
void sink_rows(const Tensor& gradient, const GradientSink& sink, const Tensor& out) {
  if (sink.keep == 0) {
    out.copy_(gradient.mul(sink.scale));
  } else {
    out.mul_(sink.keep).add_(gradient, sink.scale);
  }
}

}  // namespace

/// A stack as [C, B, groups, channels, places], a view.
Tensor SampleNorm::by_part(const Tensor& stack) const {
  return stack.view({stack.size(0), stack.size(1), parts_.groups, parts_.channels, parts_.places});
}

/// The weights (0) or biases (1) in rows [C, P], a view that fits by_part.
Tensor SampleNorm::parameters_in(const Tensor& rows, std::size_t number) const {
  return rows.narrow(1, column_ + static_cast<std::int64_t>(number) * width(), width())
      .view({rows.size(0), 1, shared_ ? 1 : parts_.groups, parts_.channels, 1});
}

void SampleNorm::forward_on_device(const Pass& pass, const Tensor& input,
                                   const Tensor& output) const {
  const auto [normal, mean, inverse] = at::native_layer_norm(input.reshape({-1, parts_.values()}),
                                                             {parts_.values()}, {}, {}, epsilon_);
  Tensor y = normal.view(by_part(output).sizes());
  if (parameters_ > 0) y.mul_(parameters_in(pass.weights, 0));
  if (parameters_ > 1) y.add_(parameters_in(pass.weights, 1));
  if (then_ == Then::Relu) y.relu_();
  by_part(output).copy_(y);
  if (pass.use == Use::Evaluation) return;
  for (const auto& [saved, of] :
       {std::pair(pass.saved.per_sample[0], mean), std::pair(pass.saved.per_sample[1], inverse)}) {
    saved.copy_(of.view(saved.sizes()));
  }
}

void SampleNorm::backward_on_device(const Pass& pass, const Tensor& input,
                                    const Tensor& output_gradient, const Tensor& input_gradient,
                                    const GradientSink& sink) const {
  const Tensor x = input.reshape({-1, parts_.values()});
  const Tensor mean = pass.saved.per_sample[0].reshape({-1, 1});
  const Tensor inverse = pass.saved.per_sample[1].reshape({-1, 1});
  const bool moves_weight = parameters_ > 0 && sink.columns.hold(kScaleTags);
  const bool moves_bias = parameters_ > 1 && sink.columns.hold(kScaleTags | Tag::Bias);
  Tensor g = by_part(output_gradient);
  Tensor normal;
  if (moves_weight || then_ == Then::Relu) normal = (x - mean).mul_(inverse).view(g.sizes());
  if (then_ == Then::Relu) {
    Tensor y = normal;
    if (parameters_ > 0) y = y * parameters_in(pass.weights, 0);
    if (parameters_ > 1) y = y + parameters_in(pass.weights, 1);
    g = at::where(y.gt(0), g, 0);
  }
  if (input_gradient.defined()) {
    const Tensor of_normal = parameters_ > 0 ? g * parameters_in(pass.weights, 0) : g;
    const Tensor dx = std::get<0>(at::native_layer_norm_backward(of_normal.reshape(x.sizes()), x,
                                                                 {parts_.values()}, mean, inverse,
                                                                 {}, {}, {true, false, false}));
    by_part(input_gradient).copy_(dx.view(g.sizes()));
  }
  const auto into_sink = [&](const Tensor& gradient, std::size_t number) {
    const Tensor out = parameters_in(sink.rows, number);
    sink_rows(gradient.sum_to_size(out.sizes()), sink, out);
  };
  if (moves_weight) into_sink(g * normal, 0);
  if (moves_bias) into_sink(g, 1);
}

}  // namespace fedhpc
