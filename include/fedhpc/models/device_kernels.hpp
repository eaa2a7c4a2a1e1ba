#pragma once

#include <cstdint>

#include "fedhpc/core/device_kernels.hpp"
#include "fedhpc/models/then.hpp"
#include "fedhpc/models/window.hpp"

// The kernels of this room on a device; fedhpc/core/device_kernels.hpp says what all keep.

namespace fedhpc {

/// y = max(x, 0), and its way back: dx = dy where y > 0, else 0.
struct DeviceRelu {
  DType type;
  DeviceStack x;
  DeviceStack y;
};

struct DeviceReluGradient {
  DType type;
  DeviceStack y;
  DeviceStack dy;
  DeviceStack dx;
};

/// y[c, b, k places + p] += bias[c, k], and where a ReLU follows, y = max(y, 0)
struct DeviceBias {
  DType type;
  DeviceStack y;
  DeviceColumns bias;
  std::int64_t places = 1;
  bool relu = false;
};

/// The sums of dy over batch and places of each channel into the sink.
struct DeviceBiasGradient {
  DType type;
  DeviceStack dy;
  std::int64_t places = 1;
  DeviceSink sink;
  DeviceStack rectified{};  ///< y of a ReLU: dy becomes 0 first where y is; data null: none
};

/// [channels, height, width] of one sample.
struct DeviceImage {
  std::int64_t channels = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
};

/// columns[c, (i, ky, kx), (b, oy, ox)] = x[c, b, i, oy stride + ky dilation - padding, ...], 0
/// outside; and its adjoint, the sum over the windows that hold a place.
struct DeviceUnfold {
  DType type;
  DeviceStack x;
  DeviceImage in;
  DeviceImage out;
  Window window;
  void* columns = nullptr;  ///< contiguous [C, in.channels taps, B places]
};

/// channel_major[c, k, (b, p)] = stack[c, b, k places + p] (To), or back (From), there with bias[c,
/// k] added where it is not null.
struct DeviceTurn {
  DType type;
  DeviceStack stack;
  std::int64_t places = 1;
  void* channel_major = nullptr;  ///< contiguous [C, channels, B places]
  DeviceColumns bias{};
};

/// What the outputs of a pooling cover, along height and width; in the device's memory.
struct DevicePooled {
  const Covered* rows = nullptr;
  const Covered* columns = nullptr;
};

/// Max pooling: the place of each maximum in its plane goes to `places` (int32, strides its own)
/// where that is not null; NaN wins. Outputs are the window's, or cover what `parts` says.
struct DeviceMaxPool {
  DType type;
  DeviceStack x;  ///< or its gradient
  DeviceStack y;  ///< or its gradient
  DeviceStack places{};
  DeviceImage in;
  DeviceImage out;
  Window window{};
  DevicePooled parts{};  ///< rows null: windows
};

/// Output (oy, ox) is the sum over what it covers, divided by the product of the counts.
struct DeviceAveragePool {
  DType type;
  DeviceStack x;
  DeviceStack y;
  DeviceImage in;
  DeviceImage out;
  DevicePooled parts;
};

/// Batch norm and what follows it, as models/image_layers.hpp has it. Parameters lie one after the
/// other in a client's columns: gamma, beta, running mean, running variance.
struct DeviceBatchNorm {
  DType type;
  Then then = Then::Nothing;
  bool training = false;
  DeviceImage in;
  double epsilon = 0;
  double momentum = 0;
  DeviceStack x;
  DeviceStack y;  ///< or, on the way back, its gradient
  DeviceColumns parameters;
  double* saved = nullptr;  ///< [C, 2, channels]: mean and 1 / deviation; when training
};

struct DeviceBatchNormGradient {
  DeviceBatchNorm norm;  ///< y: the gradient
  DeviceStack dx{};      ///< data null: not wanted
  DeviceSink sink{};     ///< of gamma and beta; out.data null: not wanted
};

/// A norm of parts of each sample and a ReLU that may follow, as models/sample_norm.hpp has it.
struct DeviceSampleNorm {
  DType type;
  bool relu = false;
  std::int64_t groups = 1;    ///< parts of a sample
  std::int64_t channels = 1;  ///< of a part
  std::int64_t places = 1;    ///< of a channel
  bool shared = false;        ///< all parts of a sample have the same parameters
  double epsilon = 0;
  DeviceStack x;
  DeviceStack y;  ///< or, on the way back, its gradient
  DeviceColumns weight{};
  DeviceColumns bias{};   ///< data null, here and of the weight: there are none
  DeviceStack mean{};     ///< of every part, float64; data null: not wanted
  DeviceStack inverse{};  ///< 1 / deviation

  std::int64_t width() const { return shared ? channels : groups * channels; }
};

struct DeviceSampleNormGradient {
  DeviceSampleNorm norm;  ///< y: the gradient
  DeviceStack dx{};       ///< data null, here and below: not wanted
  DeviceSink weight{};
  DeviceSink bias{};
};

/// out[c] = keep out[c] + scale values[c] for [rows, columns] columns.
struct DeviceAccumulate {
  DType type;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  DeviceColumns values;
  DeviceSink sink;
};

/// What layers and rows do on a device.
class ModelKernels {
 public:
  virtual ~ModelKernels() = default;

  virtual void relu(const DeviceRelu&) = 0;
  virtual void relu_gradient(const DeviceReluGradient&) = 0;
  virtual void add_bias(const DeviceBias&) = 0;
  virtual void bias_gradient(const DeviceBiasGradient&) = 0;
  virtual void unfold(const DeviceUnfold&) = 0;
  virtual void fold(const DeviceUnfold&) = 0;  ///< x becomes the adjoint's image of the columns
  virtual void turn_to(const DeviceTurn&) = 0;
  virtual void turn_from(const DeviceTurn&) = 0;
  virtual void max_pool(const DeviceMaxPool&) = 0;
  virtual void max_pool_gradient(const DeviceMaxPool&) = 0;
  virtual void average_pool(const DeviceAveragePool&) = 0;
  virtual void average_pool_gradient(const DeviceAveragePool&) = 0;
  virtual void batch_norm(const DeviceBatchNorm&) = 0;
  virtual void batch_norm_gradient(const DeviceBatchNormGradient&) = 0;
  virtual void sample_norm(const DeviceSampleNorm&) = 0;
  virtual void sample_norm_gradient(const DeviceSampleNormGradient&) = 0;
  virtual void accumulate(const DeviceAccumulate&) = 0;
};

}  // namespace fedhpc
