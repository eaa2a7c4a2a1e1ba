#include <algorithm>
#include <array>
#include <numeric>

#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>

#include "fedhpc/math/products.hpp"
#include "fedhpc/models/device_kernels.hpp"
#include "fedhpc/models/image_layers.hpp"

#include "models/device_convolution.hpp"
#include "models/device_image.hpp"
#include "models/host_convolution.hpp"
#include "models/kept_columns.hpp"

namespace fedhpc {

namespace {

/// Client c's batch in a stack [C, B, features].
template <typename T>
Images<T> images_of(const Tensor& stack, std::int64_t c) {
  if (!stack.defined()) return {};
  return {static_cast<T*>(stack.data_ptr()) + c * stack.stride(0), stack.stride(1), stack.size(1)};
}

/// out = keep out + scale values, not reading out with keep = 0.
template <typename T>
void accumulate(const T* values, std::int64_t length, double scale, double keep, T* out) {
  const T s = static_cast<T>(scale);
  const T k = static_cast<T>(keep);
  if (keep == 0) {
    for (std::int64_t i = 0; i < length; ++i) out[i] = s * values[i];
  } else {
    for (std::int64_t i = 0; i < length; ++i) out[i] = k * out[i] + s * values[i];
  }
}

/// The sum over batch and places of each channel of dY [batch, channels, places].
template <typename T>
std::vector<T> channel_sums(const T* dy, std::int64_t stride, std::int64_t batch,
                            const ImageShape& shape) {
  constexpr std::int64_t kLanes = 64 / sizeof(T);  // sums that grow side by side
  std::vector<T> sums(static_cast<std::size_t>(shape.channels), T{0});
  for (std::int64_t b = 0; b < batch; ++b) {
    const T* plane = dy + b * stride;
    for (T& sum : sums) {
      std::array<T, kLanes> lanes{};
      std::int64_t p = 0;
      for (; p + kLanes <= shape.places(); p += kLanes) {
        for (std::int64_t l = 0; l < kLanes; ++l)
          lanes[static_cast<std::size_t>(l)] += plane[p + l];
      }
      for (; p < shape.places(); ++p) sum += plane[p];
      sum += std::accumulate(lanes.begin(), lanes.end(), T{0});
      plane += shape.places();
    }
  }
  return sums;
}

}  // namespace

Conv2d::Conv2d(ParameterNames names, ImageShape in, std::int64_t out_channels, Window window,
               Bias bias, Tag tags, std::int64_t groups, std::int64_t dimensions)
    : names_(std::move(names)),
      in_(in),
      out_(window.output(in, out_channels)),
      window_(window),
      bias_(bias),
      tags_(tags),
      groups_(groups),
      dimensions_(dimensions) {
  require(window.fits(in), "a convolution's window fits into its image");
  require(in.channels % groups == 0 && out_channels % groups == 0,
          "the groups of a convolution are equally large");
  if (groups == 1 && HostConvolution::takes(in_, out_))
    host_ = std::make_shared<HostConvolution>(in_, out_, window_);
}

std::int64_t Conv2d::output_features() const { return out_.values(); }

void Conv2d::declare(Layout& layout) {
  const std::int64_t fan_in = inner();
  Shape shape{out_.channels, in_.channels / groups_};
  if (dimensions_ > 1) shape.push_back(window_.size.height);
  shape.push_back(window_.size.width);
  weight_column_ = layout.size();
  layout.add(names_.of(0, "weight"), shape, fan_in, tags_ | kWeightTags);
  if (bias_ == Bias::None) return;
  bias_column_ = layout.size();
  layout.add(names_.of(1, "bias"), {out_.channels}, fan_in, tags_ | kBiasTags);
}

Saved Conv2d::make_saved(std::int64_t, std::int64_t, const at::TensorOptions& options,
                         Use use) const {
  if (use == Use::Evaluation || !options.device().is_cuda()) return {};
  return {.of_part = std::make_shared<KeptColumns>()};
}

double Conv2d::forward_flops() const { return 2.0 * static_cast<double>(out_.values() * inner()); }

/// Client c's batch [B, channels, height, width], a view.
Tensor Conv2d::images(const Tensor& stack, std::int64_t c, const ImageShape& shape) const {
  return stack.select(0, c).view({stack.size(1), shape.channels, shape.height, shape.width});
}

/// The weights in rows [C, P], a view [C, n].
Tensor Conv2d::weights_in(const Tensor& rows) const {
  return rows.narrow(1, weight_column_, out_.channels * inner());
}

/// Client c's of them as LibTorch has them, a view.
Tensor Conv2d::kernels_of(const Tensor& weights, std::int64_t c) const {
  return weights.select(0, c).view(
      {out_.channels, in_.channels / groups_, window_.size.height, window_.size.width});
}

Tensor Conv2d::biases_in(const Tensor& rows) const {
  return bias_ == Bias::Use ? rows.narrow(1, bias_column_, out_.channels) : Tensor();
}

void Conv2d::forward(const Pass& pass, Stacks inputs, const Tensor& output) const {
  const Tensor& input = inputs[0];
  if (on_device(input)) {
    return DeviceConvolution(in_, out_, window_, groups_, pass)
        .forward(weights_in(pass.weights), biases_in(pass.weights), input, output);
  }
  const Tensor x = as_factors(input, pass.arithmetic.precision);
  const Tensor weights = as_factors(weights_in(pass.weights), pass.arithmetic.precision);
  const Tensor biases = biases_in(pass.weights);
  for (std::int64_t c = 0; c < input.size(0); ++c) {
    if (host_) {
      with_type(input.scalar_type(), [&]<typename T>() {
        const T* bias =
            biases.defined() ? biases.const_data_ptr<T>() + c * biases.stride(0) : nullptr;
        host_->forward<T>(images_of<const T>(x, c),
                          weights.const_data_ptr<T>() + c * weights.stride(0), bias,
                          images_of<T>(output, c));
      });
      continue;
    }
    std::optional<Tensor> bias;
    if (biases.defined()) bias = biases.select(0, c);
    images(output, c, out_)
        .copy_(at::convolution(images(x, c, in_), kernels_of(weights, c), bias,
                               window_.stride.pair(), window_.padding.pair(),
                               window_.dilation.pair(), /*transposed=*/false, {0, 0}, groups_));
  }
}

void Conv2d::backward(const Pass& pass, Stacks inputs, const Tensor&, const Tensor& output_gradient,
                      Stacks input_gradients, const GradientSink& sink) const {
  const Tensor& input = inputs[0];
  const Tensor& input_gradient = input_gradients[0];
  const bool moves_weight = sink.columns.hold(tags_ | kWeightTags);
  const bool moves_bias = bias_ == Bias::Use && sink.columns.hold(tags_ | kBiasTags);
  if (on_device(input)) {
    const DeviceConvolution convolution(in_, out_, window_, groups_, pass);
    // dX before the sink may change W
    if (input_gradient.defined()) {
      convolution.input_gradient(weights_in(pass.weights), output_gradient, input_gradient);
    }
    if (moves_weight) {
      convolution.weight_gradient(input, output_gradient, weights_in(sink.rows), sink.scale,
                                  sink.keep);
    }
    convolution.drop_columns();
    if (!moves_bias) return;
    return device_kernels<ModelKernels>().bias_gradient(
        {.type = real_of(output_gradient),
         .dy = device_stack(output_gradient),
         .places = out_.places(),
         .sink = {device_columns(sink.rows, bias_column_), sink.scale, sink.keep}});
  }
  const Tensor x = as_factors(input, pass.arithmetic.precision);
  const Tensor dy = as_factors(output_gradient, pass.arithmetic.precision);
  const Tensor weights = as_factors(weights_in(pass.weights), pass.arithmetic.precision);
  with_type(input.scalar_type(), [&]<typename T>() {
    std::vector<T> own(host_ && moves_weight ? static_cast<std::size_t>(out_.channels * inner())
                                             : 0);
    for (std::int64_t c = 0; c < input.size(0); ++c) {
      const T* gradient = own.data();
      Tensor gradients;
      if (host_) {
        host_->backward<T>(images_of<const T>(x, c), images_of<const T>(dy, c),
                           weights.const_data_ptr<T>() + c * weights.stride(0),
                           images_of<T>(input_gradient, c), moves_weight ? own.data() : nullptr);
      } else {
        const auto [dx, dw, unused] = at::convolution_backward(
            images(dy, c, out_), images(x, c, in_), kernels_of(weights, c), std::nullopt,
            window_.stride.pair(), window_.padding.pair(), window_.dilation.pair(),
            /*transposed=*/false, {0, 0}, groups_, {input_gradient.defined(), moves_weight, false});
        if (input_gradient.defined()) images(input_gradient, c, in_).copy_(dx);
        if (moves_weight) {
          gradients = dw.contiguous();
          gradient = gradients.const_data_ptr<T>();
        }
      }
      T* row = sink.rows.data_ptr<T>() + c * sink.rows.stride(0);
      if (moves_weight) {
        accumulate(gradient, out_.channels * inner(), sink.scale, sink.keep, row + weight_column_);
      }
      if (!moves_bias) continue;
      const std::vector<T> db =
          channel_sums(output_gradient.const_data_ptr<T>() + c * output_gradient.stride(0),
                       output_gradient.stride(1), input.size(1), out_);
      accumulate(db.data(), out_.channels, sink.scale, sink.keep, row + bias_column_);
    }
  });
}

}  // namespace fedhpc
