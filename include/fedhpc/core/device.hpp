#pragma once

#include <exception>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "fedhpc/core/device_kernels.hpp"
#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

/// Returns a tensor in host memory: itself if it lies there, else a copy, for which the host waits.
inline Tensor on_host(const Tensor& values) { return values.is_cpu() ? values : values.cpu(); }

/// Lets the host change a tensor: itself in host memory, else a copy. The copy goes back when this
/// is destroyed, unless an exception is unwinding.
class HostEdit {
 public:
  explicit HostEdit(const Tensor& values) : values_(values), host_(on_host(values)) {}
  ~HostEdit() noexcept(false) {
    if (!values_.is_cpu() && std::uncaught_exceptions() == uncaught_) values_.copy_(host_);
  }
  HostEdit(const HostEdit&) = delete;
  HostEdit& operator=(const HostEdit&) = delete;

  const Tensor& values() const { return host_; }

 private:
  int uncaught_ = std::uncaught_exceptions();
  Tensor values_;
  Tensor host_;
};

/// True where kernels of our own replace the host's loops.
inline bool on_device(const Tensor& values) { return values.is_cuda(); }

inline DType real_of(const Tensor& values) {
  return values.scalar_type() == at::kDouble ? DType::Float64 : DType::Float32;
}

/// Describes a stack [C, B, width] to kernels, or images by channels [C, B, channels, places]; the
/// last dimension is contiguous.
inline DeviceStack device_stack(const Tensor& stack) {
  const bool by_channels = stack.dim() == 4;
  return {.data = stack.data_ptr(),
          .clients = stack.size(0),
          .batch = stack.size(1),
          .width = by_channels ? stack.size(2) * stack.size(3) : stack.size(2),
          .client_stride = stack.stride(0),
          .sample_stride = stack.stride(1),
          .channel_stride = by_channels ? stack.stride(2) : 0};
}

/// Describes the columns from `column` on of rows [C, P] to kernels.
inline DeviceColumns device_columns(const Tensor& rows, std::int64_t column = 0) {
  return {static_cast<char*>(rows.data_ptr()) + column * static_cast<std::int64_t>(rows.itemsize()),
          rows.stride(0)};
}

/// Returns the CUDA device that this thread uses. Precondition: device_kernels() have been loaded.
inline at::Device current_cuda_device() {
  return c10::impl::VirtualGuardImpl(at::kCUDA).getDevice();
}

/// Marks a range on the profiler's time line for the length of a scope, where there is a device.
class DeviceScope {
 public:
  DeviceScope(bool active, const char* name) : active_(active) {
    if (active_) device_kernels().begin_range(name);
  }
  ~DeviceScope() {
    if (active_) device_kernels().end_range();
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  bool active_;
};

}  // namespace fedhpc
