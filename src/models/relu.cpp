#include "fedhpc/core/device.hpp"
#include "fedhpc/models/device_kernels.hpp"
#include "fedhpc/models/layer.hpp"

#include "models/rectify.hpp"

namespace fedhpc {

namespace {

/// Calls work(a, b, out) for the contiguous last dimensions of three tensors [C, B, width].
template <typename T, typename Work>
void each_row(const Tensor& a, const Tensor& b, const Tensor& out, Work&& work) {
  for (std::int64_t c = 0; c < out.size(0); ++c) {
    for (std::int64_t i = 0; i < out.size(1); ++i) {
      work(a.const_data_ptr<T>() + c * a.stride(0) + i * a.stride(1),
           b.const_data_ptr<T>() + c * b.stride(0) + i * b.stride(1),
           out.data_ptr<T>() + c * out.stride(0) + i * out.stride(1));
    }
  }
}

}  // namespace

void rectify(const Tensor& x, const Tensor& y) {
  if (on_device(x)) {
    return device_kernels<ModelKernels>().relu(
        {.type = real_of(x), .x = device_stack(x), .y = device_stack(y)});
  }
  const std::int64_t width = x.size(2);
  with_type(x.scalar_type(), [&]<typename T>() {
    each_row<T>(x, x, y, [width](const T* from, const T*, T* to) {
      // Written so that NaN stays NaN: a diverged model must show.
      for (std::int64_t i = 0; i < width; ++i) to[i] = from[i] < T{0} ? T{0} : from[i];
    });
  });
}

void rectify_gradient(const Tensor& y, const Tensor& dy, const Tensor& dx) {
  if (on_device(y)) {
    return device_kernels<ModelKernels>().relu_gradient(
        {.type = real_of(y), .y = device_stack(y), .dy = device_stack(dy), .dx = device_stack(dx)});
  }
  const std::int64_t width = y.size(2);
  with_type(y.scalar_type(), [&]<typename T>() {
    each_row<T>(y, dy, dx, [width](const T* value, const T* from, T* to) {
      for (std::int64_t i = 0; i < width; ++i) to[i] = value[i] > T{0} ? from[i] : T{0};
    });
  });
}

void Relu::forward(const Pass&, Stacks inputs, const Tensor& output) const {
  rectify(inputs[0], output);
}

void Relu::backward(const Pass&, Stacks inputs, const Tensor&, const Tensor& output_gradient,
                    Stacks input_gradients, const GradientSink&) const {
  // y > 0 exactly where x > 0: right, whichever of them the memory holds.
  if (input_gradients[0].defined()) {
    rectify_gradient(inputs[0], output_gradient, input_gradients[0]);
  }
}

void Sum::forward(const Pass&, Stacks inputs, const Tensor& output) const {
  // In place: the first input is there already.
  if (!output.is_alias_of(inputs[0])) output.copy_(inputs[0]);
  for (const Tensor& input : inputs.subspan(1)) output.add_(input);
}

}  // namespace fedhpc
