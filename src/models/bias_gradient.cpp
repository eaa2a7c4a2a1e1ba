#include "models/bias_gradient.hpp"

#include "fedhpc/core/device.hpp"
#include "fedhpc/models/device_kernels.hpp"

#include "models/rectify.hpp"

namespace fedhpc {

namespace {

/// db = sum over the batch of dY [batch, width], into db = keep db + scale (sum). Sums of some
/// columns at a time stay in registers.
template <typename T>
void sum_rows(const T* dy, std::int64_t stride, std::int64_t batch, std::int64_t width, T scale,
              T keep, T* db) {
  constexpr std::int64_t kColumns = 16;
  const auto write = [=](T sum, T& out) { out = (keep == T{0} ? T{0} : keep * out) + scale * sum; };
  std::int64_t o = 0;
  for (; o + kColumns <= width; o += kColumns) {
    T sum[kColumns] = {};
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t i = 0; i < kColumns; ++i) sum[i] += dy[b * stride + o + i];
    }
    for (std::int64_t i = 0; i < kColumns; ++i) write(sum[i], db[o + i]);
  }
  for (; o < width; ++o) {
    T sum{0};
    for (std::int64_t b = 0; b < batch; ++b) sum += dy[b * stride + o];
    write(sum, db[o]);
  }
}

}  // namespace

void bias_gradient(const Tensor& output_gradient, std::int64_t column, const GradientSink& sink,
                   const Tensor& rectified) {
  if (on_device(output_gradient)) {
    return device_kernels<ModelKernels>().bias_gradient(
        {.type = real_of(output_gradient),
         .dy = device_stack(output_gradient),
         .sink = {device_columns(sink.rows, column), sink.scale, sink.keep},
         .rectified = rectified.defined() ? device_stack(rectified) : DeviceStack{}});
  }
  if (rectified.defined()) rectify_gradient(rectified, output_gradient, output_gradient);
  with_type(output_gradient.scalar_type(), [&]<typename T>() {
    for (std::int64_t c = 0; c < output_gradient.size(0); ++c) {
      const T* dy = output_gradient.const_data_ptr<T>() + c * output_gradient.stride(0);
      T* bias = sink.rows.data_ptr<T>() + c * sink.rows.stride(0) + column;
      sum_rows(dy, output_gradient.stride(1), output_gradient.size(1), output_gradient.size(2),
               static_cast<T>(sink.scale), static_cast<T>(sink.keep), bias);
    }
  });
}

}  // namespace fedhpc
