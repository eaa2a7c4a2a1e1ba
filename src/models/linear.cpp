#include <algorithm>

#include "fedhpc/core/device.hpp"
#include "fedhpc/math/products.hpp"
#include "fedhpc/models/device_kernels.hpp"
#include "fedhpc/models/layer.hpp"

#include "models/bias_gradient.hpp"
#include "models/rectify.hpp"

namespace fedhpc {

Linear::Linear(ParameterNames names, std::int64_t in, std::int64_t out, Tag tags, Bias bias,
               std::int64_t places, Then then)
    : names_(std::move(names)),
      in_(in),
      out_(out),
      tags_(tags),
      bias_(bias),
      places_(places),
      then_(then) {}

void Linear::declare(Layout& layout) {
  weight_column_ = layout.size();
  layout.add(names_.of(0, "weight"), {out_, in_}, in_, tags_ | kWeightTags);
  if (bias_ == Bias::None) return;
  bias_column_ = layout.size();
  layout.add(names_.of(1, "bias"), {out_}, in_, tags_ | kBiasTags);
}

/// A stack [C, B, places features] as [C, B places, features], a view.
Tensor Linear::at_places(const Tensor& stack, std::int64_t features) const {
  return places_ == 1 ? stack : stack.view({stack.size(0), stack.size(1) * places_, features});
}

void Linear::forward(const Pass& pass, Stacks inputs, const Tensor& stack) const {
  const Tensor input = at_places(inputs[0], in_);
  const Tensor output = at_places(stack, out_);
  const Tensor& weights = pass.weights;
  const std::int64_t clients = input.size(0);
  const std::int64_t batch = input.size(1);
  const bool biased = bias_ == Bias::Use;
  const bool device = on_device(output);
  // Y = 1 b^T + X W^T: the product adds onto the bias already in place.
  with_type(weights.scalar_type(), [&]<typename T>() {
    if (!biased || device) return;
    for (std::int64_t c = 0; c < clients; ++c) {
      const T* bias = weights.const_data_ptr<T>() + c * weights.stride(0) + bias_column_;
      T* y = output.data_ptr<T>() + c * output.stride(0);
      for (std::int64_t b = 0; b < batch; ++b) {
        std::copy_n(bias, out_, y + b * output.stride(1));
      }
    }
  });
  batched_product(weights.scalar_type(), clients, 1, matrices_of(input), Transpose::No,
                  matrices_in(weights, weight_column_, out_, in_), Transpose::Yes,
                  biased && !device ? 1 : 0, matrices_of(output), pass.arithmetic);
  if (biased && device) {
    device_kernels<ModelKernels>().add_bias({.type = real_of(output),
                                             .y = device_stack(output),
                                             .bias = device_columns(weights, bias_column_),
                                             .relu = then_ == Then::Relu});
  } else if (then_ == Then::Relu) {
    rectify(output, output);
  }
}

void Linear::backward(const Pass& pass, Stacks inputs, const Tensor& stack, const Tensor& gradient,
                      Stacks input_gradients, const GradientSink& sink) const {
  const Tensor input = at_places(inputs[0], in_);
  const Tensor output_gradient = at_places(gradient, out_);
  const Tensor input_gradient =
      input_gradients[0].defined() ? at_places(input_gradients[0], in_) : Tensor();
  const Tensor& weights = pass.weights;
  const at::ScalarType type = weights.scalar_type();
  const std::int64_t clients = input.size(0);
  // db, and dY as it is before a ReLU
  const Tensor rectified = then_ == Then::Relu ? at_places(stack, out_) : Tensor();
  if (bias_ == Bias::Use && sink.columns.hold(tags_ | kBiasTags)) {
    bias_gradient(output_gradient, bias_column_, sink, rectified);
  } else if (rectified.defined()) {
    rectify_gradient(rectified, output_gradient, output_gradient);
  }
  // dX = dY W, before the sink may change W
  if (input_gradient.defined()) {
    batched_product(type, clients, 1, matrices_of(output_gradient), Transpose::No,
                    matrices_in(weights, weight_column_, out_, in_), Transpose::No, 0,
                    matrices_of(input_gradient), pass.arithmetic);
  }
  // dW = dY^T X
  if (!sink.columns.hold(tags_ | kWeightTags)) return;
  const bool stepped =
      sink.step != nullptr &&
      pulled_product_(type, clients, sink.step->lr, sink.step->mu, matrices_of(output_gradient),
                      Transpose::Yes, matrices_of(input),
                      matrices_in(sink.step->centres, weight_column_, out_, in_),
                      matrices_in(weights, weight_column_, out_, in_), pass.arithmetic);
  if (stepped) {
    sink.step->taken.push_back({weight_column_, weight_column_ + out_ * in_});
  } else {
    batched_product(type, clients, sink.scale, matrices_of(output_gradient), Transpose::Yes,
                    matrices_of(input), Transpose::No, sink.keep,
                    matrices_in(sink.rows, weight_column_, out_, in_), pass.arithmetic);
  }
}

}  // namespace fedhpc
