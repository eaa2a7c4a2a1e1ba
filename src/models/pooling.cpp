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

/// Writes the largest values of a plane among what `outputs` windows of a row cover to `y`, NaN where
/// there is one, and to `places` where they lie. The windows have the first one's size and lie
/// `stride` apart. There is no branch, which no processor would guess, and many outputs at once.
template <typename T>
void maxima_of_row(const T* plane, std::int64_t width, const Covered& down, const Covered& first,
                   std::int64_t stride, std::int64_t outputs, const Sides& step, T* __restrict y,
                   std::int32_t* __restrict places) {
  const auto start = static_cast<std::int32_t>(down.first * width + first.first);
  for (std::int64_t o = 0; o < outputs; ++o) {
    places[o] = start + static_cast<std::int32_t>(o * stride);
    y[o] = plane[places[o]];
  }
  for (std::int64_t row = down.first; row < down.last; row += step.height) {
    for (std::int64_t x = first.first; x < first.last; x += step.width) {
      const T* values = plane + row * width + x;
      const auto place = static_cast<std::int32_t>(row * width + x);
      for (std::int64_t o = 0; o < outputs; ++o) {
        const T value = values[o * stride];
        const bool larger = static_cast<int>(value > y[o]) | static_cast<int>(value != value);
        y[o] = larger ? value : y[o];
        places[o] = larger ? place + static_cast<std::int32_t>(o * stride) : places[o];
      }
    }
  }
}

/// How far these windows lie apart if all have one size and distance, else 0.
std::int64_t stride_of(const std::vector<Covered>& columns) {
  const std::int64_t stride = columns.size() < 2 ? 1 : columns[1].first - columns[0].first;
  for (std::size_t o = 0; o < columns.size(); ++o) {
    const std::int64_t shift = static_cast<std::int64_t>(o) * stride;
    if (columns[o].first != columns[0].first + shift || columns[o].last != columns[0].last + shift)
      return 0;
  }
  return stride;
}

Pooled covered_by(const ImageShape& in, const Window& window, bool count_padding) {
  return {window.down().covered(in.height, count_padding),
          window.across().covered(in.width, count_padding)};
}

Pooled parts_of(const ImageShape& in, std::int64_t height, std::int64_t width) {
  return {adaptive_parts(in.height, height), adaptive_parts(in.width, width)};
}

DeviceImage pooled_image(const ImageShape& in, const Pooled& pooled) {
  return {in.channels, static_cast<std::int64_t>(pooled.rows.size()),
          static_cast<std::int64_t>(pooled.columns.size())};
}

DevicePooled device_pooled(const Pooled& pooled, const Tensor& table) {
  static_assert(sizeof(Covered) == 3 * sizeof(std::int64_t));
  const auto* all = static_cast<const Covered*>(table.const_data_ptr());
  return {all, all + pooled.rows.size()};
}

}  // namespace

Saved Pooled::on_device(const at::TensorOptions& options) const {
  if (!options.device().is_cuda()) return {};
  std::vector<std::int64_t> numbers;
  for (const auto* side : {&rows, &columns}) {
    for (const Covered& one : *side) {
      numbers.insert(numbers.end(), {one.first, one.last, one.count});
    }
  }
  Saved saved;
  saved.shared.push_back(at::tensor(numbers, at::kLong).to(options.device()));
  return saved;
}

MaxPool2d::MaxPool2d(ImageShape in, Window window)
    : in_(in), window_(window), pooled_(covered_by(in, window, false)) {
  const auto reach = [](const std::vector<Covered>& side) {
    return !side.empty() && std::all_of(side.begin(), side.end(),
                                        [](const Covered& one) { return one.first < one.last; });
  };
  require(reach(pooled_.rows) && reach(pooled_.columns), "a pooling window reaches its image");
}

MaxPool2d::MaxPool2d(ImageShape in, std::int64_t height, std::int64_t width)
    : in_(in), adaptive_(true), pooled_(parts_of(in, height, width)) {}

Saved MaxPool2d::make_saved(std::int64_t clients, std::int64_t batch,
                            const at::TensorOptions& options, Use use) const {
  Saved saved = adaptive_ ? pooled_.on_device(options) : Saved{};
  // The place of each maximum in its plane.
  if (use == Use::Training) {
    saved.per_sample.push_back(
        at::empty({clients, batch, output_features()}, options.dtype(at::kInt)));
  }
  return saved;
}

DeviceMaxPool MaxPool2d::on_device_as(const Pass& pass, const Tensor& x, const Tensor& y) const {
  return {
      .type = real_of(x),
      .x = device_stack(x),
      .y = device_stack(y),
      .places = pass.use == Use::Training ? device_stack(pass.saved.per_sample[0]) : DeviceStack{},
      .in = device_image(in_),
      .out = pooled_image(in_, pooled_),
      .window = window_,
      .parts = adaptive_ ? device_pooled(pooled_, pass.saved.shared[0]) : DevicePooled{}};
}

void MaxPool2d::forward(const Pass& pass, Stacks inputs, const Tensor& output) const {
  const Tensor& input = inputs[0];
  if (on_device(input))
    return device_kernels<ModelKernels>().max_pool(on_device_as(pass, input, output));
  const auto columns = static_cast<std::int64_t>(pooled_.columns.size());
  const std::int64_t stride = stride_of(pooled_.columns);
  std::vector<std::int32_t> unkept(pooled_.columns.size());
  with_type(input.scalar_type(), [&]<typename T>() {
    for (std::int64_t c = 0; c < input.size(0); ++c) {
      for (std::int64_t b = 0; b < input.size(1); ++b) {
        const T* plane = sample<T>(input, c, b);
        T* y = sample<T>(output, c, b);
        const bool keeps = pass.use == Use::Training;
        std::int32_t* places =
            keeps ? sample<std::int32_t>(pass.saved.per_sample[0], c, b) : unkept.data();
        for (std::int64_t i = 0; i < in_.channels; ++i, plane += in_.places()) {
          for (const Covered& down : pooled_.rows) {
            if (stride > 0) {
              maxima_of_row(plane, in_.width, down, pooled_.columns.front(), stride, columns,
                            window_.dilation, y, places);
            } else {
              for (std::int64_t o = 0; o < columns; ++o) {
                const Covered& across = pooled_.columns[static_cast<std::size_t>(o)];
                maxima_of_row(plane, in_.width, down, across, 1, 1, window_.dilation, y + o,
                              places + o);
              }
            }
            y += columns;
            if (keeps) places += columns;
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
          for (std::int64_t o = 0; o < pooled_.places(); ++o) plane[*place++] += *dy++;
        }
      }
    }
  });
}

AveragePool2d::AveragePool2d(ImageShape in, Window window, bool count_padding)
    : in_(in), pooled_(covered_by(in, window, count_padding)) {
  require(pooled_.places() > 0 && window.dilation == Sides(1),
          "an averaging window fits into its image");
}

AveragePool2d::AveragePool2d(ImageShape in, std::int64_t height, std::int64_t width)
    : in_(in), pooled_(parts_of(in, height, width)) {}

Saved AveragePool2d::make_saved(std::int64_t, std::int64_t, const at::TensorOptions& options,
                                Use) const {
  return pooled_.on_device(options);
}

DeviceAveragePool AveragePool2d::on_device_as(const Pass& pass, const Tensor& image,
                                              const Tensor& pooled) const {
  return {.type = real_of(image),
          .x = device_stack(image),
          .y = device_stack(pooled),
          .in = device_image(in_),
          .out = pooled_image(in_, pooled_),
          .parts = device_pooled(pooled_, pass.saved.shared[0])};
}

/// Calls work(first place of a row of a window, its length, 1 / what the mean divides by, pooled
/// value) for every row of every window.
template <typename T, typename Work>
void AveragePool2d::each_window(const Tensor& image, const Tensor& pooled, Work&& work) const {
  for (std::int64_t c = 0; c < image.size(0); ++c) {
    for (std::int64_t b = 0; b < image.size(1); ++b) {
      T* plane = sample<T>(image, c, b);
      T* value = sample<T>(pooled, c, b);
      for (std::int64_t i = 0; i < in_.channels; ++i, plane += in_.places()) {
        for (const Covered& rows : pooled_.rows) {
          for (const Covered& columns : pooled_.columns) {
            const std::int64_t length = columns.last - columns.first;
            const T share = T{1} / static_cast<T>(rows.count * columns.count);
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
