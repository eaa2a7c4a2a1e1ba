#include "models/device_convolution.hpp"

#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>

#include "fedhpc/models/device_kernels.hpp"

#include "models/device_image.hpp"

namespace fedhpc {

namespace {

using Way = ConvolutionWay;

bool is_grouped(Way way) { return way == Way::Grouped || way == Way::GroupedChannelsLast; }

at::MemoryFormat order_of(Way way) {
  return way == Way::LoopChannelsLast || way == Way::GroupedChannelsLast
             ? at::MemoryFormat::ChannelsLast
             : at::MemoryFormat::Contiguous;
}

/// A stack as [C, B, channels, height, width], a view.
Tensor planes(const Tensor& stack, const ImageShape& shape) {
  if (lies_by_channels(stack)) return stack.unflatten(3, {shape.height, shape.width});
  return stack.view({stack.size(0), stack.size(1), shape.channels, shape.height, shape.width});
}

/// What LibTorch takes or makes, of clients one after the other or as channels of one batch, as
/// [C, B, channels, height, width], a view.
Tensor clients_of(const Tensor& images, const Tensor& stack, const ImageShape& shape, Way way) {
  if (is_grouped(way)) return images.unflatten(1, {stack.size(0), shape.channels}).transpose(0, 1);
  return images.unflatten(0, {stack.size(0), stack.size(1)});
}

/// Memory for images as LibTorch has them.
Tensor room_for(const Tensor& stack, const ImageShape& shape, Way way) {
  const std::int64_t clients = stack.size(0);
  const bool grouped = is_grouped(way);
  return at::empty({grouped ? stack.size(1) : clients * stack.size(1),
                    grouped ? clients * shape.channels : shape.channels, shape.height, shape.width},
                   stack.options(), order_of(way));
}

/// The same order of memory, of clients one after the other.
Way ungrouped(Way way) {
  return way == Way::GroupedChannelsLast ? Way::LoopChannelsLast : Way::Loop;
}

Tensor convolve(const Tensor& x, const Tensor& kernels, const Window& window, std::int64_t groups) {
  return at::convolution(x, kernels, std::nullopt, window.stride.pair(), window.padding.pair(),
                         window.dilation.pair(), /*transposed=*/false, {0, 0}, groups);
}

enum class Gradient { Input, Weight };

Tensor gradient(Gradient of, const Tensor& dy, const Tensor& x, const Tensor& kernels,
                const Window& window, std::int64_t groups) {
  const auto all = at::convolution_backward(dy, x, kernels, std::nullopt, window.stride.pair(),
                                            window.padding.pair(), window.dilation.pair(),
                                            /*transposed=*/false, {0, 0}, groups,
                                            {of == Gradient::Input, of == Gradient::Weight, false});
  return of == Gradient::Input ? std::get<0>(all) : std::get<1>(all);
}

}  // namespace

void DeviceConvolution::Target::add(const Tensor& values, std::int64_t first,
                                    std::int64_t count) const {
  const Tensor exact = values.to(rows.scalar_type()).contiguous();
  device_kernels<ModelKernels>().accumulate(
      {.type = real_of(rows),
       .rows = count,
       .columns = rows.size(1),
       .values = {exact.data_ptr(), rows.size(1)},
       .sink = {device_columns(rows.narrow(0, first, count)), scale, keep}});
}

ConvolutionCase DeviceConvolution::case_of(ConvolutionDirection direction,
                                           const Tensor& stack) const {
  return {.direction = direction,
          .in_channels = in_.channels,
          .in_height = in_.height,
          .in_width = in_.width,
          .out_channels = out_.channels,
          .window = window_,
          .groups = groups_,
          .clients = stack.size(0),
          .batch = stack.size(1),
          .type = real_of(stack),
          .precision = arithmetic_.precision};
}

/// The way of every case, where that is not to be measured.
std::optional<Way> DeviceConvolution::told() const {
  if (const auto forced = forced_convolution()) return forced;
  if (trials_ == nullptr || arithmetic_.summation == Summation::Reproducible) return Way::Unfolded;
  return std::nullopt;
}

Way DeviceConvolution::choose(ConvolutionDirection direction, const Tensor& stack,
                              const std::function<void(Way)>& run) const {
  if (const auto way = told()) return *way;
  return trials_->fastest(case_of(direction, stack), stack.device(), run);
}

/// Memory for the columns of x where the weights' gradient will read them, as far as is known.
Tensor DeviceConvolution::columns_to_keep(const Tensor& x) const {
  if (kept_ == nullptr) return {};
  std::optional<Way> way = told();
  if (!way) way = trials_->known(case_of(ConvolutionDirection::WeightGradient, x));
  if (way.value_or(Way::Unfolded) != Way::Unfolded) return {};
  return kept_->make(x, shape_of_columns(x), trials_->kept_bytes());
}

Tensor DeviceConvolution::kept_columns(const Tensor& x) const {
  return kept_ == nullptr ? Tensor() : kept_->of(x, shape_of_columns(x));
}

void DeviceConvolution::forward(const Tensor& weights, const Tensor& bias, const Tensor& x,
                                const Tensor& y) const {
  const Way way = choose(ConvolutionDirection::Forward, x,
                         [&](Way tried) { forward(weights, bias, x, y, tried); });
  const Tensor kept = way == Way::Unfolded ? columns_to_keep(x) : Tensor();
  forward(weights, bias, x, y, way, kept);
}

void DeviceConvolution::weight_gradient(const Tensor& x, const Tensor& dy, const Tensor& target,
                                        double scale, double keep) const {
  const Way way = choose(ConvolutionDirection::WeightGradient, x, [&](Way tried) {
    // A trial moves no weights.
    weight_gradient(x, dy, {at::empty(target.sizes(), target.options()), 1, 0}, tried);
  });
  weight_gradient(x, dy, {target, scale, keep}, way);
}

void DeviceConvolution::input_gradient(const Tensor& weights, const Tensor& dy,
                                       const Tensor& dx) const {
  const auto run = [&](Way way) { input_gradient(weights, dy, dx, way); };
  run(choose(ConvolutionDirection::InputGradient, dx, run));
}

/// Factors for LibTorch, float32 by the precision set for all. What is rounded to bfloat16 is
/// float32 again: of factors of that type LibTorch would round the results as well.
Tensor DeviceConvolution::rounded(const Tensor& values) const {
  const bool shorter =
      arithmetic_.precision == Precision::Bf16 && values.scalar_type() == at::kFloat;
  return shorter ? values.to(at::kBFloat16).to(at::kFloat) : values;
}

/// A stack as images of LibTorch: of client after client, or clients as channels of one batch.
Tensor DeviceConvolution::images(const Tensor& stack, const ImageShape& shape, Way way) const {
  const Tensor all = rounded(planes(stack, shape));
  if (way == Way::Loop && all.is_contiguous()) return all.flatten(0, 1);
  const Tensor made = room_for(stack, shape, way);
  clients_of(made, stack, shape, way).copy_(all);
  return made;
}

/// Weights of all clients, one client's outputs after the other's.
Tensor DeviceConvolution::kernels(const Tensor& rows, Way way) const {
  const Tensor in_line = rows.reshape({rows.size(0) * out_.channels, in_.channels / groups_,
                                       window_.size.height, window_.size.width});
  return rounded(in_line).contiguous(order_of(way));
}

/// Client c's part of what has one client after the other, `count` in all.
Tensor DeviceConvolution::of_client(const Tensor& all, std::int64_t c, std::int64_t count) const {
  const std::int64_t size = all.size(0) / count;
  return all.narrow(0, c * size, size);
}

void DeviceConvolution::forward(const Tensor& weights, const Tensor& bias, const Tensor& x,
                                const Tensor& y, Way way, const Tensor& kept) const {
  if (way == Way::Unfolded) return forward_unfolded(weights, bias, x, y, kept);
  // One model for all: their batches are one.
  const std::int64_t models = weights.stride(0) == 0 ? 1 : x.size(0);
  if (models == 1) way = ungrouped(way);
  const Tensor input = images(x, in_, way);
  const Tensor filters = kernels(weights.narrow(0, 0, models), way);
  if (is_grouped(way)) {
    const Tensor result = convolve(input, filters, window_, models * groups_);
    planes(y, out_).copy_(clients_of(result, y, out_, way));
  } else {
    for (std::int64_t m = 0; m < models; ++m) {
      const Tensor own = models == 1 ? y : y.narrow(0, m, 1);
      const Tensor result =
          convolve(of_client(input, m, models), of_client(filters, m, models), window_, groups_);
      planes(own, out_).copy_(clients_of(result, own, out_, way));
    }
  }
  if (bias.defined()) add_bias(bias, y);
}

void DeviceConvolution::add_bias(const Tensor& bias, const Tensor& y) const {
  device_kernels<ModelKernels>().add_bias({.type = real_of(y),
                                           .y = device_stack(y),
                                           .bias = device_columns(bias),
                                           .places = out_.places()});
}

void DeviceConvolution::weight_gradient(const Tensor& x, const Tensor& dy, const Target& target,
                                        Way way) const {
  if (way == Way::Unfolded) return weight_gradient_unfolded(x, dy, target);
  const std::int64_t clients = x.size(0);
  const Tensor input = images(x, in_, way);
  const Tensor output = images(dy, out_, way);
  // Only the shape of the weights counts here, and that of the input in input_gradient().
  const Tensor filters = at::empty(
      {clients * out_.channels, in_.channels / groups_, window_.size.height, window_.size.width},
      input.options());
  if (is_grouped(way)) {
    target.add(gradient(Gradient::Weight, output, input, filters, window_, clients * groups_), 0,
               clients);
    return;
  }
  for (std::int64_t c = 0; c < clients; ++c) {
    target.add(
        gradient(Gradient::Weight, of_client(output, c, clients), of_client(input, c, clients),
                 of_client(filters, c, clients), window_, groups_),
        c, 1);
  }
}

void DeviceConvolution::input_gradient(const Tensor& weights, const Tensor& dy, const Tensor& dx,
                                       Way way) const {
  if (way == Way::Unfolded) return input_gradient_unfolded(weights, dy, dx);
  const std::int64_t clients = dx.size(0);
  const Tensor output = images(dy, out_, way);
  const Tensor filters = kernels(weights, way);
  const Tensor input = room_for(dx, in_, way);
  const auto put = [&](const Tensor& result, const Tensor& stack) {
    planes(stack, in_).copy_(clients_of(result, stack, in_, way));
  };
  if (is_grouped(way)) {
    put(gradient(Gradient::Input, output, input, filters, window_, clients * groups_), dx);
    return;
  }
  for (std::int64_t c = 0; c < clients; ++c) {
    put(gradient(Gradient::Input, of_client(output, c, clients), of_client(input, c, clients),
                 of_client(filters, c, clients), window_, groups_),
        dx.narrow(0, c, 1));
  }
}

}  // namespace fedhpc
