#include "models/device_convolution.hpp"

#include <algorithm>

#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>

#include "fedhpc/models/device_kernels.hpp"

#include "models/device_image.hpp"

namespace fedhpc {

namespace {

using Way = ConvolutionWay;

constexpr std::int64_t kScratchBytes = std::int64_t{1} << 30;

bool is_grouped(Way way) { return way == Way::Grouped || way == Way::GroupedChannelsLast; }

at::MemoryFormat order_of(Way way) {
  return way == Way::LoopChannelsLast || way == Way::GroupedChannelsLast
             ? at::MemoryFormat::ChannelsLast
             : at::MemoryFormat::Contiguous;
}

/// A stack [C, B, values] as [C, B, channels, height, width], a view.
Tensor planes(const Tensor& stack, const ImageShape& shape) {
  return stack.view({stack.size(0), stack.size(1), shape.channels, shape.height, shape.width});
}

/// Stack = what LibTorch made of it: for each client, or as channels of one batch.
void put(const Tensor& result, const Tensor& stack, const ImageShape& shape) {
  planes(stack, shape)
      .transpose(0, 1)
      .copy_(
          result.view({stack.size(1), stack.size(0), shape.channels, shape.height, shape.width}));
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

/// rows [C, n] of `count` clients from number `first` on = keep rows + scale values
void accumulate(const Tensor& values, const Tensor& rows, std::int64_t first, std::int64_t count,
                double scale, double keep) {
  const Tensor exact = values.to(rows.scalar_type()).contiguous();
  device_kernels<ModelKernels>().accumulate(
      {.type = real_of(rows),
       .rows = count,
       .columns = rows.size(1),
       .values = {exact.data_ptr(), rows.size(1)},
       .sink = {device_columns(rows.narrow(0, first, count)), scale, keep}});
}

}  // namespace

Way DeviceConvolution::choose(ConvolutionDirection direction, const Tensor& stack,
                              const std::function<void(Way)>& run) const {
  if (const auto forced = forced_convolution()) return *forced;
  if (trials_ == nullptr || arithmetic_.summation == Summation::Reproducible) return Way::Unfolded;
  return trials_->fastest({.direction = direction,
                           .in_channels = in_.channels,
                           .in_height = in_.height,
                           .in_width = in_.width,
                           .out_channels = out_.channels,
                           .window = window_,
                           .groups = groups_,
                           .clients = stack.size(0),
                           .batch = stack.size(1),
                           .type = real_of(stack),
                           .precision = arithmetic_.precision},
                          stack.device(), run);
}

void DeviceConvolution::forward(const Tensor& weights, const Tensor& bias, const Tensor& x,
                                const Tensor& y) const {
  const auto run = [&](Way way) { forward(weights, bias, x, y, way); };
  run(choose(ConvolutionDirection::Forward, x, run));
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
Tensor DeviceConvolution::in_order(const Tensor& values, Way way) const {
  const bool shorter =
      arithmetic_.precision == Precision::Bf16 && values.scalar_type() == at::kFloat;
  return (shorter ? values.to(at::kBFloat16).to(at::kFloat) : values).contiguous(order_of(way));
}

/// A stack as images of LibTorch: of client after client, or clients as channels of one batch.
Tensor DeviceConvolution::images(const Tensor& stack, const ImageShape& shape, Way way) const {
  const Tensor all = planes(stack, shape);
  const Tensor in_line = is_grouped(way) ? all.transpose(0, 1).flatten(1, 2) : all.flatten(0, 1);
  return in_order(in_line, way);
}

/// Weights of all clients, one client's outputs after the other's.
Tensor DeviceConvolution::kernels(const Tensor& rows, Way way) const {
  const Tensor in_line = rows.reshape({rows.size(0) * out_.channels, in_.channels / groups_,
                                       window_.size.height, window_.size.width});
  return in_order(in_line, way);
}

/// Client c's part of what has one client after the other, `count` in all.
Tensor DeviceConvolution::of_client(const Tensor& all, std::int64_t c, std::int64_t count) const {
  const std::int64_t size = all.size(0) / count;
  return all.narrow(0, c * size, size);
}

void DeviceConvolution::forward(const Tensor& weights, const Tensor& bias, const Tensor& x,
                                const Tensor& y, Way way) const {
  if (way == Way::Unfolded) return forward_unfolded(weights, bias, x, y);
  const std::int64_t clients = x.size(0);
  if (clients > 1 && weights.stride(0) == 0 && x.is_contiguous() && y.is_contiguous()) {
    // One model for all: their batches are one.
    return forward(weights.narrow(0, 0, 1), bias.defined() ? bias.narrow(0, 0, 1) : bias,
                   x.flatten(0, 1).unsqueeze(0), y.flatten(0, 1).unsqueeze(0), way);
  }
  const Tensor input = images(x, in_, way);
  const Tensor filters = kernels(weights, way);
  if (is_grouped(way)) {
    put(convolve(input, filters, window_, clients * groups_), y, out_);
  } else {
    for (std::int64_t c = 0; c < clients; ++c) {
      put(convolve(of_client(input, c, clients), of_client(filters, c, clients), window_, groups_),
          y.narrow(0, c, 1), out_);
    }
  }
  if (!bias.defined()) return;
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
    accumulate(gradient(Gradient::Weight, output, input, filters, window_, clients * groups_),
               target.rows, 0, clients, target.scale, target.keep);
    return;
  }
  for (std::int64_t c = 0; c < clients; ++c) {
    accumulate(
        gradient(Gradient::Weight, of_client(output, c, clients), of_client(input, c, clients),
                 of_client(filters, c, clients), window_, groups_),
        target.rows, c, 1, target.scale, target.keep);
  }
}

void DeviceConvolution::input_gradient(const Tensor& weights, const Tensor& dy, const Tensor& dx,
                                       Way way) const {
  if (way == Way::Unfolded) return input_gradient_unfolded(weights, dy, dx);
  const std::int64_t clients = dx.size(0);
  const std::int64_t batch = dx.size(1);
  const Tensor output = images(dy, out_, way);
  const Tensor filters = kernels(weights, way);
  const bool grouped = is_grouped(way);
  const Tensor input =
      at::empty({grouped ? batch : clients * batch, grouped ? clients * in_.channels : in_.channels,
                 in_.height, in_.width},
                output.options(), order_of(way));
  if (grouped) {
    put(gradient(Gradient::Input, output, input, filters, window_, clients * groups_), dx, in_);
    return;
  }
  for (std::int64_t c = 0; c < clients; ++c) {
    put(gradient(Gradient::Input, of_client(output, c, clients), of_client(input, c, clients),
                 of_client(filters, c, clients), window_, groups_),
        dx.narrow(0, c, 1), in_);
  }
}

/// Calls work(first, count) for the clients of a stack, as many at a time as have room.
void DeviceConvolution::each_slice(
    const Tensor& stack, const std::function<void(std::int64_t, std::int64_t)>& work) const {
  const std::int64_t of_one = (all_inner() + out_.channels) * stack.size(1) * out_.places() *
                              static_cast<std::int64_t>(stack.itemsize());
  const std::int64_t most = std::max<std::int64_t>(1, kScratchBytes / of_one);
  for (std::int64_t first = 0; first < stack.size(0); first += most) {
    work(first, std::min(most, stack.size(0) - first));
  }
}

DeviceUnfold DeviceConvolution::unfolding(const Tensor& stack, const Tensor& columns) const {
  return {.type = real_of(stack),
          .x = device_stack(stack),
          .in = device_image(in_),
          .out = device_image(out_),
          .window = window_,
          .columns = columns.data_ptr()};
}

DeviceTurn DeviceConvolution::turning(const Tensor& stack, const Tensor& channel_major) const {
  return {.type = real_of(stack),
          .stack = device_stack(stack),
          .places = out_.places(),
          .channel_major = channel_major.data_ptr()};
}

void DeviceConvolution::forward_unfolded(const Tensor& weights, const Tensor& bias, const Tensor& x,
                                         const Tensor& y) const {
  const std::int64_t places = x.size(1) * out_.places();
  const std::int64_t outputs = out_.channels / groups_;
  each_slice(x, [&](std::int64_t first, std::int64_t count) {
    const Tensor columns = at::empty({count, all_inner(), places}, x.options());
    const Tensor result = at::empty({count, out_.channels, places}, x.options());
    device_kernels<ModelKernels>().unfold(unfolding(x.narrow(0, first, count), columns));
    const Tensor own = one_by_one(weights.narrow(0, first, count));
    batched_product(x.scalar_type(), count * groups_, 1, weights_of_groups(own), Transpose::No,
                    of_groups(columns, inner()), Transpose::No, 0, of_groups(result, outputs),
                    arithmetic_);
    DeviceTurn turn = turning(y.narrow(0, first, count), result);
    if (bias.defined()) turn.bias = device_columns(bias.narrow(0, first, count));
    device_kernels<ModelKernels>().turn_from(turn);
  });
}

void DeviceConvolution::weight_gradient_unfolded(const Tensor& x, const Tensor& dy,
                                                 const Target& target) const {
  const std::int64_t places = x.size(1) * out_.places();
  const std::int64_t outputs = out_.channels / groups_;
  each_slice(x, [&](std::int64_t first, std::int64_t count) {
    const Tensor columns = at::empty({count, all_inner(), places}, x.options());
    const Tensor turned = at::empty({count, out_.channels, places}, x.options());
    device_kernels<ModelKernels>().unfold(unfolding(x.narrow(0, first, count), columns));
    device_kernels<ModelKernels>().turn_to(turning(dy.narrow(0, first, count), turned));
    const bool direct = groups_ == 1;  // products of groups do not go into rows that lie apart
    const Tensor rows = direct ? target.rows.narrow(0, first, count)
                               : at::empty({count, target.rows.size(1)}, x.options());
    batched_product(x.scalar_type(), count * groups_, direct ? target.scale : 1,
                    of_groups(turned, outputs), Transpose::No, of_groups(columns, inner()),
                    Transpose::Yes, direct ? target.keep : 0, weights_of_groups(rows), arithmetic_);
    if (!direct) accumulate(rows, target.rows, first, count, target.scale, target.keep);
  });
}

void DeviceConvolution::input_gradient_unfolded(const Tensor& weights, const Tensor& dy,
                                                const Tensor& dx) const {
  const std::int64_t places = dx.size(1) * out_.places();
  const std::int64_t outputs = out_.channels / groups_;
  each_slice(dx, [&](std::int64_t first, std::int64_t count) {
    const Tensor columns = at::empty({count, all_inner(), places}, dx.options());
    const Tensor turned = at::empty({count, out_.channels, places}, dx.options());
    device_kernels<ModelKernels>().turn_to(turning(dy.narrow(0, first, count), turned));
    const Tensor own = one_by_one(weights.narrow(0, first, count));
    batched_product(dx.scalar_type(), count * groups_, 1, weights_of_groups(own), Transpose::Yes,
                    of_groups(turned, outputs), Transpose::No, 0, of_groups(columns, inner()),
                    arithmetic_);
    device_kernels<ModelKernels>().fold(unfolding(dx.narrow(0, first, count), columns));
  });
}

}  // namespace fedhpc
