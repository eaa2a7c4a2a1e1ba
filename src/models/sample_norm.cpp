#include "fedhpc/models/sample_norm.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <ATen/ops/empty.h>

#include "fedhpc/core/device.hpp"

#include "models/sample_norm_kernels.hpp"

namespace fedhpc {

namespace {

/// The start of part g of sample (c, b) of a stack [C, B, ...].
template <typename T>
T* part_of(const Tensor& stack, std::int64_t c, std::int64_t b, std::int64_t first) {
  return static_cast<T*>(stack.data_ptr()) + c * stack.stride(0) + b * stack.stride(1) + first;
}

}  // namespace

/// One client's parameters; 1 and 0 where there are none.
template <typename T>
struct SampleNorm::Weights {
  Weights(const SampleNorm& norm, const T* row) : w(row), b(row + norm.width()) {
    const auto width = static_cast<std::size_t>(norm.width());
    if (norm.parameters_ < 1) w = (ones = std::vector<T>(width, T{1})).data();
    if (norm.parameters_ < 2) b = (zeros = std::vector<T>(width, T{0})).data();
  }

  const T* w;
  const T* b;
  std::vector<T> ones{};
  std::vector<T> zeros{};
};

SampleNorm::SampleNorm(ParameterNames names, NormedParts parts, Shape shape, std::size_t parameters,
                       double epsilon, Then then)
    : names_(std::move(names)),
      parts_(parts),
      shape_(std::move(shape)),
      parameters_(parameters),
      epsilon_(epsilon),
      then_(then) {
  const std::int64_t width =
      std::accumulate(shape_.begin(), shape_.end(), std::int64_t{1}, std::multiplies<>());
  shared_ = width == parts.channels;
  require(shared_ || width == parts.groups * parts.channels,
          "a norm has a parameter for each channel of a sample, or of a part");
}

void SampleNorm::declare(Layout& layout) {
  column_ = layout.size();
  if (parameters_ > 0) {
    layout.add(names_.of(0, "weight"), shape_, width(), kScaleTags, Initial::One);
  }
  if (parameters_ > 1) {
    layout.add(names_.of(1, "bias"), shape_, width(), kScaleTags | Tag::Bias, Initial::Zero);
  }
}

Saved SampleNorm::make_saved(std::int64_t clients, std::int64_t batch,
                             const at::TensorOptions& options, Use use) const {
  if (use == Use::Evaluation) return {};
  // Mean and 1 / sqrt(variance + epsilon) of each part.
  const auto type = options.dtype(at::kDouble);
  return {.per_sample = {at::empty({clients, batch, parts_.groups}, type),
                         at::empty({clients, batch, parts_.groups}, type)}};
}

DeviceSampleNorm SampleNorm::on_device_as(const Pass& pass, const Tensor& x,
                                          const Tensor& y) const {
  DeviceSampleNorm norm{.type = real_of(x),
                        .relu = then_ == Then::Relu,
                        .groups = parts_.groups,
                        .channels = parts_.channels,
                        .places = parts_.places,
                        .shared = shared_,
                        .epsilon = epsilon_,
                        .x = device_stack(x),
                        .y = device_stack(y)};
  if (parameters_ > 0) norm.weight = device_columns(pass.weights, column_);
  if (parameters_ > 1) norm.bias = device_columns(pass.weights, column_ + width());
  if (pass.use == Use::Training) {
    norm.mean = device_stack(pass.saved.per_sample[0]);
    norm.inverse = device_stack(pass.saved.per_sample[1]);
  }
  return norm;
}

void SampleNorm::forward(const Pass& pass, Stacks inputs, const Tensor& output) const {
  const Tensor& input = inputs[0];
  if (on_device(input))
    return device_kernels<ModelKernels>().sample_norm(on_device_as(pass, input, output));
  const bool training = pass.use == Use::Training;
  with_type(input.scalar_type(), [&]<typename T>() {
    for (std::int64_t c = 0; c < input.size(0); ++c) {
      const Weights<T> weights(
          *this, pass.weights.const_data_ptr<T>() + c * pass.weights.stride(0) + column_);
      for (std::int64_t b = 0; b < input.size(1); ++b) {
        for (std::int64_t g = 0; g < parts_.groups; ++g) {
          const std::int64_t own = shared_ ? 0 : g * parts_.channels;
          NormedPart<T> part{.of = parts_,
                             .x = part_of<const T>(input, c, b, g * parts_.values()),
                             .w = weights.w + own,
                             .b = weights.b + own};
          const Moments of = part_moments(part.x, parts_.values());
          part.mean = of.mean;
          part.inverse = 1 / std::sqrt(of.variance + epsilon_);
          if (training) {
            *part_of<double>(pass.saved.per_sample[0], c, b, g) = part.mean;
            *part_of<double>(pass.saved.per_sample[1], c, b, g) = part.inverse;
          }
          part.normalise(then_ == Then::Relu, part_of<T>(output, c, b, g * parts_.values()));
        }
      }
    }
  });
}

void SampleNorm::backward(const Pass& pass, Stacks inputs, const Tensor&,
                          const Tensor& output_gradient, Stacks input_gradients,
                          const GradientSink& sink) const {
  const Tensor& input = inputs[0];
  const Tensor& input_gradient = input_gradients[0];
  const bool moves_weight = parameters_ > 0 && sink.columns.hold(kScaleTags);
  const bool moves_bias = parameters_ > 1 && sink.columns.hold(kScaleTags | Tag::Bias);
  if (on_device(input)) {
    DeviceSampleNormGradient gradient{.norm = on_device_as(pass, input, output_gradient)};
    if (input_gradient.defined()) gradient.dx = device_stack(input_gradient);
    const auto sink_from = [&](std::int64_t column) {
      return DeviceSink{device_columns(sink.rows, column), sink.scale, sink.keep};
    };
    if (moves_weight) gradient.weight = sink_from(column_);
    if (moves_bias) gradient.bias = sink_from(column_ + width());
    return device_kernels<ModelKernels>().sample_norm_gradient(gradient);
  }
  with_type(input.scalar_type(), [&]<typename T>() {
    std::vector<double> sums(static_cast<std::size_t>(2 * width()));
    double* dw = sums.data();
    double* db = dw + width();
    for (std::int64_t c = 0; c < input.size(0); ++c) {
      const Weights<T> weights(
          *this, pass.weights.const_data_ptr<T>() + c * pass.weights.stride(0) + column_);
      std::fill(sums.begin(), sums.end(), 0.0);
      for (std::int64_t b = 0; b < input.size(1); ++b) {
        for (std::int64_t g = 0; g < parts_.groups; ++g) {
          const std::int64_t own = shared_ ? 0 : g * parts_.channels;
          const std::int64_t first = g * parts_.values();
          const NormedPart<T> part{
              .of = parts_,
              .x = part_of<const T>(input, c, b, first),
              .w = weights.w + own,
              .b = weights.b + own,
              .mean = *part_of<const double>(pass.saved.per_sample[0], c, b, g),
              .inverse = *part_of<const double>(pass.saved.per_sample[1], c, b, g)};
          const PartGradients<T> back{
              .part = part,
              .g = part_of<const T>(output_gradient, c, b, first),
              .dx = input_gradient.defined() ? part_of<T>(input_gradient, c, b, first) : nullptr,
              .dw = dw + own,
              .db = db + own};
          const bool relu = then_ == Then::Relu;
          if (parts_.places > 1) {
            relu ? back.template by_channels<true>() : back.template by_channels<false>();
          } else {
            relu ? back.template by_values<true>() : back.template by_values<false>();
          }
        }
      }
      T* out = sink.rows.data_ptr<T>() + c * sink.rows.stride(0) + column_;
      for (std::int64_t k = 0; k < width(); ++k) {
        if (moves_weight) sink_value(dw[k], sink, out[k]);
        if (moves_bias) sink_value(db[k], sink, out[width() + k]);
      }
    }
  });
}

}  // namespace fedhpc
