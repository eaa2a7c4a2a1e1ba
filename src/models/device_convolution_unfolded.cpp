#include <algorithm>

#include <ATen/ops/empty.h>

#include "fedhpc/core/error.hpp"
#include "fedhpc/math/device_kernels.hpp"
#include "fedhpc/models/device_kernels.hpp"

#include "models/device_convolution.hpp"
#include "models/device_image.hpp"

// Convolutions as products of unfolded images.

namespace fedhpc {

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

/// The columns of a stack, in this memory or in new one.
Tensor DeviceConvolution::unfolded(const Tensor& stack, const Tensor& memory) const {
  const Tensor columns =
      memory.defined() ? memory : at::empty(shape_of_columns(stack), stack.options());
  device_kernels<ModelKernels>().unfold(unfolding(stack, columns));
  return columns;
}

DeviceTurn DeviceConvolution::turning(const Tensor& stack, const Tensor& images) const {
  return {.type = real_of(stack),
          .stack = device_stack(stack),
          .places = out_.places(),
          .channel_major = images.data_ptr()};
}

MatrixStack DeviceConvolution::outputs_of_groups(const Tensor& images) const {
  // A channel of all samples is a row of the product, and so are the columns'.
  if (arithmetic_.summation == Summation::Reproducible &&
      images.stride(2) >= DeviceProduct::kTooLong) {
    throw ConfigError(concat("run.reproducible on a device takes convolutions of fewer than ",
                             DeviceProduct::kTooLong, " places in a batch, and this one has ",
                             images.stride(2), ", ", out_.places(),
                             " a sample; use a smaller train.batch_size"));
  }
  const std::int64_t channels = out_.channels / groups_;
  return {.data = images.data_ptr(),
          .stack_stride = groups_ == 1 ? images.stride(0) : channels * images.stride(2),
          .rows = channels,
          .columns = images.size(1) * images.size(3),
          .row_stride = images.stride(2),
          .on_device = true};
}

/// A stack of outputs itself where it lies by channels, else memory for them.
Tensor DeviceConvolution::by_channels(const Tensor& stack) const {
  if (lies_by_channels(stack)) return stack;
  const std::int64_t clients = stack.size(0);
  return at::empty({clients, out_.channels, stack.size(1), out_.places()}, stack.options())
      .transpose(1, 2);
}

/// Outputs by channels.
Tensor DeviceConvolution::turned(const Tensor& stack) const {
  const Tensor images = by_channels(stack);
  if (!lies_by_channels(stack)) device_kernels<ModelKernels>().turn_to(turning(stack, images));
  return images;
}

void DeviceConvolution::forward_unfolded(const Tensor& weights, const Tensor& bias, const Tensor& x,
                                         const Tensor& y, const Tensor& kept) const {
  each_slice(x, [&](std::int64_t first, std::int64_t count) {
    const Tensor of_slice = y.narrow(0, first, count);
    const Tensor result = by_channels(of_slice);
    const Tensor columns = unfolded(x.narrow(0, first, count),
                                    kept.defined() ? kept.narrow(0, first, count) : Tensor());
    const Tensor own = one_by_one(weights.narrow(0, first, count));
    batched_product(x.scalar_type(), count * groups_, 1, weights_of_groups(own), Transpose::No,
                    of_groups(columns, inner()), Transpose::No, 0, outputs_of_groups(result),
                    arithmetic_);
    if (lies_by_channels(y)) return;
    DeviceTurn turn = turning(of_slice, result);
    if (bias.defined()) turn.bias = device_columns(bias.narrow(0, first, count));
    device_kernels<ModelKernels>().turn_from(turn);
  });
  if (bias.defined() && lies_by_channels(y)) add_bias(bias, y);
}

void DeviceConvolution::weight_gradient_unfolded(const Tensor& x, const Tensor& dy,
                                                 const Target& target) const {
  const Tensor kept = kept_columns(x);
  each_slice(x, [&](std::int64_t first, std::int64_t count) {
    const Tensor columns =
        kept.defined() ? kept.narrow(0, first, count) : unfolded(x.narrow(0, first, count));
    const Tensor outputs = turned(dy.narrow(0, first, count));
    const bool direct = groups_ == 1;  // products of groups do not go into rows that lie apart
    const Tensor rows = direct ? target.rows.narrow(0, first, count)
                               : at::empty({count, target.rows.size(1)}, x.options());
    batched_product(x.scalar_type(), count * groups_, direct ? target.scale : 1,
                    outputs_of_groups(outputs), Transpose::No, of_groups(columns, inner()),
                    Transpose::Yes, direct ? target.keep : 0, weights_of_groups(rows), arithmetic_);
    if (!direct) target.add(rows, first, count);
  });
}

void DeviceConvolution::input_gradient_unfolded(const Tensor& weights, const Tensor& dy,
                                                const Tensor& dx) const {
  each_slice(dx, [&](std::int64_t first, std::int64_t count) {
    const Tensor of_slice = dx.narrow(0, first, count);
    const Tensor columns = at::empty(shape_of_columns(of_slice), dx.options());
    const Tensor outputs = turned(dy.narrow(0, first, count));
    const Tensor own = one_by_one(weights.narrow(0, first, count));
    batched_product(dx.scalar_type(), count * groups_, 1, weights_of_groups(own), Transpose::Yes,
                    outputs_of_groups(outputs), Transpose::No, 0, of_groups(columns, inner()),
                    arithmetic_);
    device_kernels<ModelKernels>().fold(unfolding(of_slice, columns));
  });
}

}  // namespace fedhpc
