#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "fedhpc/core/range.hpp"

// What this project computes on a GPU by kernels of its own: arguments are plain numbers and
// addresses, so that neither a kernel's source needs LibTorch's headers nor a caller CUDA's.
//
// Every address is one of device memory, every stride counts values of the argument's type, and
// columns of rows are contiguous. A call enqueues its work on the calling thread's current stream
// and returns; it neither waits nor allocates, so that it can be captured.

namespace fedhpc {

/// Number type of weights, data and activations.
enum class DType { Float32, Float64 };

/// How float32 products are taken (train.precision); float64 ones are always exact to rounding.
enum class Precision {
  Fp32,  ///< float32 throughout
  Tf32,  ///< factors rounded to 10 bits of fraction, sums in float32
  Bf16   ///< factors rounded to bfloat16, sums in float32
};

/// Activations [C, B, width]: values of sample b of client c start at c client_stride + b
/// sample_stride. Those of images by channels do not follow each other: channel k's places start k
/// channel_stride later, and a channel's samples follow each other.
struct DeviceStack {
  void* data = nullptr;
  std::int64_t clients = 0;
  std::int64_t batch = 0;
  std::int64_t width = 0;
  std::int64_t client_stride = 0;
  std::int64_t sample_stride = 0;
  std::int64_t channel_stride = 0;  ///< of images by channels, else 0
};

/// Columns that belong to one client of rows [C, P]: they start at data + c stride.
struct DeviceColumns {
  void* data = nullptr;
  std::int64_t stride = 0;
};

/// out = keep out + scale gradient; with keep = 0 `out` is not read.
struct DeviceSink {
  DeviceColumns out;
  double scale = 1;
  double keep = 0;
};

/// Enqueued work that can be run again: on the same addresses, with what they hold by then.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual void replay() = 0;
};

/// The kernels of one process and its device: what all rooms need of them. Each room names its own
/// kernels in a class of its device_kernels.hpp, and one table of the module is all of these
/// classes. The real one is loaded when a GPU is asked for; tests have others, from the same
/// sources, on host memory.
class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;

  /// counters[0 .. count) += 1
  virtual void advance(std::int64_t* counters, std::int64_t count) = 0;

  /// Runs `work`, which enqueues kernels and tensor operations, without computing anything, and
  /// gives what was enqueued. Work that waits for the device, or copies from or to pageable host
  /// memory, cannot be captured: that throws.
  virtual std::unique_ptr<DeviceGraph> capture(const std::function<void()>& work) = 0;
  /// From now on an operation that makes the host wait for the device throws, or no longer does.
  virtual void forbid_waiting(bool forbidden) = 0;
  /// A named range on the profiler's time line (NVTX).
  virtual void begin_range(const char* name) = 0;
  virtual void end_range() = 0;
};

/// The module with the kernels and LibTorch's CUDA library, loaded once a process. Throws Error
/// with the reason if this build has none or it cannot be loaded.
DeviceKernels& device_kernels();

/// The kernels of a room, for instance `device_kernels<ModelKernels>().relu(...)`.
template <typename Kernels>
Kernels& device_kernels() {
  static Kernels& of_room = dynamic_cast<Kernels&>(device_kernels());
  return of_room;
}

}  // namespace fedhpc
