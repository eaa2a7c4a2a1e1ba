#include "fedhpc/core/device.hpp"
#include "fedhpc/models/device_kernels.hpp"
#include "fedhpc/models/layer.hpp"

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

void Relu::forward(const Pass&, Stacks inputs, const Tensor& output) const {
  const Tensor& input = inputs[0];
  if (on_device(input)) {
    return device_kernels<ModelKernels>().relu(
        {.type = real_of(input), .x = device_stack(input), .y = device_stack(output)});
  }
  const std::int64_t width = input.size(2);
  with_type(input.scalar_type(), [&]<typename T>() {
    each_row<T>(input, input, output, [width](const T* x, const T*, T* y) {
      // Written so that NaN stays NaN: a diverged model must show.
      for (std::int64_t i = 0; i < width; ++i) y[i] = x[i] < T{0} ? T{0} : x[i];
    });
  });
}

void Sum::forward(const Pass&, Stacks inputs, const Tensor& output) const {
  // In place: the first input is there already.
  if (!output.is_alias_of(inputs[0])) output.copy_(inputs[0]);
  for (const Tensor& input : inputs.subspan(1)) output.add_(input);
}

void Relu::backward(const Pass&, Stacks inputs, const Tensor&, const Tensor& output_gradient,
                    Stacks input_gradients, const GradientSink&) const {
  const Tensor& input = inputs[0];
  const Tensor& input_gradient = input_gradients[0];
  if (!input_gradient.defined()) return;
  if (on_device(input)) {
    return device_kernels<ModelKernels>().relu_gradient({.type = real_of(input),
                                                         .y = device_stack(input),
                                                         .dy = device_stack(output_gradient),
                                                         .dx = device_stack(input_gradient)});
  }
  const std::int64_t width = input.size(2);
  // y > 0 exactly where x > 0: right, whichever of them the memory holds.
  with_type(input.scalar_type(), [&]<typename T>() {
    each_row<T>(input, output_gradient, input_gradient, [width](const T* x, const T* dy, T* dx) {
      for (std::int64_t i = 0; i < width; ++i) dx[i] = x[i] > T{0} ? dy[i] : T{0};
    });
  });
}

}  // namespace fedhpc
