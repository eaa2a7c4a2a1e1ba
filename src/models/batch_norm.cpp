#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/ops/empty.h>

#include "fedhpc/models/device_kernels.hpp"
#include "fedhpc/models/image_layers.hpp"

#include "models/device_image.hpp"
#include "models/norm_kernels.hpp"

namespace fedhpc {

namespace {

/// Channel i of client c's batch in a stack [C, B, channels * places].
template <typename T>
Planes<T> channel(const Tensor& stack, std::int64_t c, std::int64_t i, std::int64_t places) {
  return {static_cast<T*>(stack.data_ptr()) + c * stack.stride(0) + i * places, stack.stride(1),
          stack.size(1), places};
}

template <typename T>
void move(T& running, double batch, double momentum) {
  running = static_cast<T>((1 - momentum) * static_cast<double>(running) + momentum * batch);
}

/// y = what follows the norm, of affine(x).
template <typename T>
void normalise(const Planes<const T>& x, const ImageShape& in, Then then, const Affine<T>& affine,
               const Planes<T>& y) {
  for (std::int64_t b = 0; b < x.batch; ++b) {
    const T* plane = x[b];
    T* out = y[b];
    if (then == Then::Nothing) {
      for (std::int64_t i = 0; i < x.places; ++i) out[i] = affine(plane[i]);
    } else if (then == Then::Relu) {
      normalise_relu(plane, affine, x.places, out);
    } else {
      for (std::int64_t row = 0; row < in.height / 2; ++row) {
        const T* top = plane + 2 * row * in.width;
        normalise_relu_pool(top, top + in.width, affine, in.width / 2, out + row * (in.width / 2));
      }
    }
  }
}

/// The gradient of a channel's normalised values where pooling follows: into `g`, 0 where no window
/// reaches.
template <typename T>
void unpool(const Planes<const T>& x, const Planes<const T>& dy, const ImageShape& in,
            const Affine<T>& affine, const Planes<T>& g) {
  const std::int64_t half = in.width / 2;
  for (std::int64_t b = 0; b < x.batch; ++b) {
    T* plane = g[b];
    if (in.height % 2 + in.width % 2 > 0) std::fill_n(plane, in.places(), T{0});
    for (std::int64_t row = 0; row < in.height / 2; ++row) {
      const std::int64_t first = 2 * row * in.width;
      const T* top = x[b] + first;
      unpool(top, top + in.width, dy[b] + row * half, affine, half, plane + first,
             plane + first + in.width);
    }
  }
}

}  // namespace

BatchNorm::BatchNorm(ParameterNames names, ImageShape in, Then then, double epsilon,
                     double momentum)
    : names_(std::move(names)), in_(in), then_(then), epsilon_(epsilon), momentum_(momentum) {
  require(then != Then::ReluMaxPool || (in.height > 1 && in.width > 1),
          "a pooling window fits into its image");
}

std::int64_t BatchNorm::output_features() const {
  return then_ == Then::ReluMaxPool ? in_.channels * (in_.height / 2) * (in_.width / 2)
                                    : in_.values();
}

void BatchNorm::declare(Layout& layout) {
  const std::vector<std::int64_t> shape{in_.channels};
  const Tag buffer = Tag::Buffer | Tag::Uncompressed;
  column_ = layout.size();
  layout.set_needs_pairs();
  layout.add(names_.of(0, "weight"), shape, in_.channels, kScaleTags, Initial::One);
  layout.add(names_.of(1, "bias"), shape, in_.channels, kScaleTags | Tag::Bias, Initial::Zero);
  layout.add(names_.of(2, "running_mean"), shape, in_.channels, buffer, Initial::Zero);
  layout.add(names_.of(3, "running_var"), shape, in_.channels, buffer, Initial::One);
}

Saved BatchNorm::make_saved(std::int64_t clients, std::int64_t, const at::TensorOptions& options,
                            Use use) const {
  if (use == Use::Evaluation) return {};
  // Mean and 1 / sqrt(variance + epsilon) of each channel.
  return {.per_client = {at::empty({clients, 2, in_.channels}, options.dtype(at::kDouble))}};
}

DeviceBatchNorm BatchNorm::on_device_as(const Pass& pass, const Tensor& x, const Tensor& y) const {
  const bool training = pass.use == Use::Training;
  return {.type = real_of(x),
          .then = then_,
          .training = training,
          .in = device_image(in_),
          .epsilon = epsilon_,
          .momentum = momentum_,
          .x = device_stack(x),
          .y = device_stack(y),
          .parameters = device_columns(pass.weights, column_),
          .saved = training ? pass.saved.per_client[0].data_ptr<double>() : nullptr};
}

void BatchNorm::forward(const Pass& pass, Stacks inputs, const Tensor& output) const {
  const Tensor& input = inputs[0];
  const bool training = pass.use == Use::Training;
  if (on_device(input))
    return device_kernels<ModelKernels>().batch_norm(on_device_as(pass, input, output));
  const std::int64_t k = in_.channels;
  const std::int64_t places_after = output.size(2) / k;
  with_type(input.scalar_type(), [&]<typename T>() {
    for (std::int64_t c = 0; c < input.size(0); ++c) {
      T* row = pass.weights.data_ptr<T>() + c * pass.weights.stride(0) + column_;
      double* saved = training ? pass.saved.per_client[0].data_ptr<double>() + c * 2 * k : nullptr;
      for (std::int64_t i = 0; i < k; ++i) {
        const auto x = channel<const T>(input, c, i, in_.places());
        Moments of{static_cast<double>(row[2 * k + i]), static_cast<double>(row[3 * k + i])};
        if (training) {
          of = moments(x);
          move(row[2 * k + i], of.mean, momentum_);
          move(row[3 * k + i], of.variance * x.values() / (x.values() - 1), momentum_);
        }
        const double inverse = 1 / std::sqrt(of.variance + epsilon_);
        if (training) {
          saved[i] = of.mean;
          saved[k + i] = inverse;
        }
        normalise(x, in_, then_, affine_of(row[i], row[k + i], of.mean, inverse),
                  channel<T>(output, c, i, places_after));
      }
    }
  });
}

namespace {

/// Sinks what a device computes into weight and bias `affine` [C, 2K], or into one of them.
void take_gradient(DeviceBatchNormGradient& gradient, const GradientSink& sink,
                   const Tensor& affine, bool moves_weight, bool moves_bias) {
  const bool one = moves_weight != moves_bias;
  const Tensor into = one ? affine.clone() : affine;
  if (moves_weight || moves_bias) gradient.sink = {device_columns(into, 0), sink.scale, sink.keep};
  device_kernels<ModelKernels>().batch_norm_gradient(gradient);
  if (!one) return;
  const std::int64_t k = affine.size(1) / 2;
  const std::int64_t first = moves_bias ? k : 0;
  affine.narrow(1, first, k).copy_(into.narrow(1, first, k));
}

}  // namespace

void BatchNorm::backward(const Pass& pass, Stacks inputs, const Tensor&,
                         const Tensor& output_gradient, Stacks input_gradients,
                         const GradientSink& sink) const {
  const Tensor& input = inputs[0];
  const Tensor& input_gradient = input_gradients[0];
  const std::int64_t k = in_.channels;
  const bool moves_weight = sink.columns.hold(kScaleTags);
  const bool moves_bias = sink.columns.hold(kScaleTags | Tag::Bias);
  if (on_device(input)) {
    DeviceBatchNormGradient gradient{.norm = on_device_as(pass, input, output_gradient)};
    if (input_gradient.defined()) gradient.dx = device_stack(input_gradient);
    const Tensor affine = sink.rows.narrow(1, column_, 2 * k);
    return take_gradient(gradient, sink, affine, moves_weight, moves_bias);
  }
  const std::int64_t places_after = output_gradient.size(2) / k;
  with_type(input.scalar_type(), [&]<typename T>() {
    const std::int64_t batch = input.size(1);
    std::vector<T> spread(then_ == Then::ReluMaxPool
                              ? static_cast<std::size_t>(batch * in_.places())
                              : std::size_t{0});
    for (std::int64_t c = 0; c < input.size(0); ++c) {
      const T* row = pass.weights.const_data_ptr<T>() + c * pass.weights.stride(0) + column_;
      T* out = sink.rows.data_ptr<T>() + c * sink.rows.stride(0) + column_;
      const double* saved = pass.saved.per_client[0].const_data_ptr<double>() + c * 2 * k;
      for (std::int64_t i = 0; i < k; ++i) {
        const double mean = saved[i];
        const double inverse = saved[k + i];
        ChannelGradient<T> of{.x = channel<const T>(input, c, i, in_.places()),
                              .g = channel<const T>(output_gradient, c, i, places_after),
                              .affine = affine_of(row[i], row[k + i], mean, inverse),
                              .mean = static_cast<T>(mean)};
        if (then_ == Then::ReluMaxPool) {
          unpool(of.x, of.g, in_, of.affine, {spread.data(), in_.places(), batch, in_.places()});
          of.g = {spread.data(), in_.places(), batch, in_.places()};
        }
        const bool relu = then_ == Then::Relu;
        const TwoSums sums = relu ? of.template sums<true>() : of.template sums<false>();
        const double dbeta = sums.first;
        const double dgamma = sums.second * inverse;
        if (input_gradient.defined()) {
          // dx = gamma inverse (g - dbeta / n - xhat dgamma / n), xhat = (x - mean) inverse
          const double scale = static_cast<double>(row[i]) * inverse;
          const double slope = -scale * inverse * dgamma / of.x.values();
          const double offset = -scale * dbeta / of.x.values() - slope * mean;
          const InputGradient<T> rule{static_cast<T>(scale), static_cast<T>(slope),
                                      static_cast<T>(offset)};
          const auto dx = channel<T>(input_gradient, c, i, in_.places());
          relu ? of.template input_gradient<true>(rule, dx)
               : of.template input_gradient<false>(rule, dx);
        }
        if (moves_weight) sink_value(dgamma, sink, out[i]);
        if (moves_bias) sink_value(dbeta, sink, out[k + i]);
      }
    }
  });
}

}  // namespace fedhpc
