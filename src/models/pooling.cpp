#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include "fedhpc/models/device_kernels.hpp"
#include "fedhpc/models/image_layers.hpp"

#include "models/device_image.hpp"

namespace fedhpc {

namespace {

/// The start of sample (c, b) of a stack [C, B, ...].
template <typename T>
T* sample(const Tensor& stack, std::int64_t c, std::int64_t b) {
  return stack.data_ptr<T>() + c * stack.stride(0) + b * stack.stride(1);
}

/// Largest value of one plane's window around output (oy, ox), NaN if there is one; its place is
/// the result.
template <typename T>
std::int32_t place_of_maximum(const T* plane, const ImageShape& in, const Window& window,
                              std::int64_t oy, std::int64_t ox) {
  const std::int64_t top = oy * window.stride - window.padding;
  const std::int64_t left = ox * window.stride - window.padding;
  const std::int64_t begin = std::max<std::int64_t>(left, 0);
  const std::int64_t end = std::min(left + window.size, in.width);
  std::int64_t best = std::max<std::int64_t>(top, 0) * in.width + begin;
  for (std::int64_t y = std::max<std::int64_t>(top, 0); y < std::min(top + window.size, in.height);
       ++y) {
    for (std::int64_t x = begin; x < end; ++x) {
      const T value = plane[y * in.width + x];
      if (value > plane[best] || value != value) best = y * in.width + x;
    }
  }
  return static_cast<std::int32_t>(best);
}

}  // namespace

MaxPool2d::MaxPool2d(ImageShape in, Window window)
    : in_(in), out_(window.output(in, in.channels)), window_(window) {
  require(out_.height > 0 && out_.width > 0, "a pooling window fits into its image");
}

std::int64_t MaxPool2d::output_features() const { return out_.values(); }

Saved MaxPool2d::make_saved(std::int64_t clients, std::int64_t batch,
                            const at::TensorOptions& options, Use use) const {
  if (use == Use::Evaluation) return {};
  // The place of each maximum in its plane.
  return {.per_sample = {at::empty({clients, batch, out_.values()}, options.dtype(at::kInt))}};
}

DeviceMaxPool MaxPool2d::on_device_as(const Pass& pass, const Tensor& x, const Tensor& y) const {
  return {
      .type = real_of(x),
      .x = device_stack(x),
      .y = device_stack(y),
      .places = pass.use == Use::Training ? device_stack(pass.saved.per_sample[0]) : DeviceStack{},
      .in = device_image(in_),
      .out = device_image(out_),
      .window = device_window(window_)};
}

void MaxPool2d::forward(const Pass& pass, Stacks inputs, const Tensor& output) const {
  const Tensor& input = inputs[0];
  if (on_device(input))
    return device_kernels<ModelKernels>().max_pool(on_device_as(pass, input, output));
  with_type(input.scalar_type(), [&]<typename T>() {
    for (std::int64_t c = 0; c < input.size(0); ++c) {
      for (std::int64_t b = 0; b < input.size(1); ++b) {
        const T* plane = sample<T>(input, c, b);
        T* y = sample<T>(output, c, b);
        std::int32_t* place = pass.use == Use::Training
                                  ? sample<std::int32_t>(pass.saved.per_sample[0], c, b)
                                  : nullptr;
        for (std::int64_t i = 0; i < in_.channels; ++i, plane += in_.places()) {
          for (std::int64_t o = 0; o < out_.places(); ++o) {
            const std::int32_t best =
                place_of_maximum(plane, in_, window_, o / out_.width, o % out_.width);
            *y++ = plane[best];
            if (place != nullptr) *place++ = best;
          }
        }
      }
    }
  });
}

void MaxPool2d::backward(const Pass& pass, Stacks, const Tensor&, const Tensor& output_gradient,
                         Stacks input_gradients, const GradientSink&) const {
  const Tensor& input_gradient = input_gradients[0];
  if (!input_gradient.defined()) return;
  if (on_device(output_gradient)) {
    return device_kernels<ModelKernels>().max_pool_gradient(
        on_device_as(pass, input_gradient, output_gradient));
  }
  with_type(output_gradient.scalar_type(), [&]<typename T>() {
    for (std::int64_t c = 0; c < output_gradient.size(0); ++c) {
      for (std::int64_t b = 0; b < output_gradient.size(1); ++b) {
        const T* dy = sample<T>(output_gradient, c, b);
        T* plane = sample<T>(input_gradient, c, b);
        const std::int32_t* place = sample<std::int32_t>(pass.saved.per_sample[0], c, b);
        std::fill_n(plane, in_.values(), T{0});
        for (std::int64_t i = 0; i < in_.channels; ++i, plane += in_.places()) {
          for (std::int64_t o = 0; o < out_.places(); ++o) plane[*place++] += *dy++;
        }
      }
    }
  });
}

AveragePool2d::AveragePool2d(ImageShape in, Window window) : in_(in) {
  require(window.padding == 0 && window.size <= std::min(in.height, in.width),
          "an averaging window lies within its image");
  const auto ranges = [&](std::int64_t length) {
    std::vector<Range> result;
    for (std::int64_t i = 0; i < window.outputs(length); ++i) {
      result.push_back({i * window.stride, i * window.stride + window.size});
    }
    return result;
  };
  rows_ = ranges(in.height);
  columns_ = ranges(in.width);
}

AveragePool2d::AveragePool2d(ImageShape in, std::int64_t height, std::int64_t width) : in_(in) {
  const auto ranges = [](std::int64_t n, std::int64_t m) {
    std::vector<Range> result;
    for (std::int64_t i = 0; i < m; ++i) result.push_back({i * n / m, ((i + 1) * n + m - 1) / m});
    return result;
  };
  rows_ = ranges(in.height, height);
  columns_ = ranges(in.width, width);
}

std::int64_t AveragePool2d::output_features() const {
  return in_.channels * static_cast<std::int64_t>(rows_.size() * columns_.size());
}

Saved AveragePool2d::make_saved(std::int64_t, std::int64_t, const at::TensorOptions& options,
                                Use) const {
  if (!options.device().is_cuda()) return {};
  // The ranges of rows, then those of columns: kernels read them from the device's memory.
  std::vector<std::int64_t> ends;
  for (const auto* ranges : {&rows_, &columns_}) {
    for (const Range& range : *ranges) ends.insert(ends.end(), {range.first, range.last});
  }
  Saved saved;
  saved.shared.push_back(at::tensor(ends, at::kLong).to(options.device()));
  return saved;
}

DeviceAveragePool AveragePool2d::on_device_as(const Pass& pass, const Tensor& image,
                                              const Tensor& pooled) const {
  static_assert(sizeof(Range) == 2 * sizeof(std::int64_t));
  const auto* ranges = static_cast<const Range*>(pass.saved.shared[0].const_data_ptr());
  return {.type = real_of(image),
          .x = device_stack(image),
          .y = device_stack(pooled),
          .in = device_image(in_),
          .rows = ranges,
          .columns = ranges + rows_.size(),
          .out_height = static_cast<std::int64_t>(rows_.size()),
          .out_width = static_cast<std::int64_t>(columns_.size())};
}

/// Calls work(first place of a row of the rectangle, its length, 1 / places of the rectangle,
/// pooled value) for every row of every rectangle.
template <typename T, typename Work>
void AveragePool2d::each_window(const Tensor& image, const Tensor& pooled, Work&& work) const {
  for (std::int64_t c = 0; c < image.size(0); ++c) {
    for (std::int64_t b = 0; b < image.size(1); ++b) {
      T* plane = sample<T>(image, c, b);
      T* value = sample<T>(pooled, c, b);
      for (std::int64_t i = 0; i < in_.channels; ++i, plane += in_.places()) {
        for (const Range& rows : rows_) {
          for (const Range& columns : columns_) {
            const std::int64_t length = columns.size();
            const T share = T{1} / static_cast<T>(rows.size() * length);
            for (std::int64_t y = rows.first; y < rows.last; ++y) {
              work(plane + y * in_.width + columns.first, length, share, *value);
            }
            ++value;
          }
        }
      }
    }
  }
}

void AveragePool2d::forward(const Pass& pass, Stacks inputs, const Tensor& output) const {
  const Tensor& input = inputs[0];
  if (on_device(input))
    return device_kernels<ModelKernels>().average_pool(on_device_as(pass, input, output));
  with_type(input.scalar_type(), [&]<typename T>() {
    output.zero_();
    each_window<T>(input, output, [](const T* x, std::int64_t length, T share, T& y) {
      for (std::int64_t i = 0; i < length; ++i) y += share * x[i];
    });
  });
}

void AveragePool2d::backward(const Pass& pass, Stacks, const Tensor&, const Tensor& output_gradient,
                             Stacks input_gradients, const GradientSink&) const {
  const Tensor& input_gradient = input_gradients[0];
  if (!input_gradient.defined()) return;
  if (on_device(output_gradient)) {
    return device_kernels<ModelKernels>().average_pool_gradient(
        on_device_as(pass, input_gradient, output_gradient));
  }
  with_type(output_gradient.scalar_type(), [&]<typename T>() {
    input_gradient.zero_();
    each_window<T>(input_gradient, output_gradient,
                   [](T* dx, std::int64_t length, T share, const T& dy) {
                     for (std::int64_t i = 0; i < length; ++i) dx[i] += share * dy;
                   });
  });
}

}  // namespace fedhpc
