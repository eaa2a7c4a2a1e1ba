#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>

#include "fedhpc/comm/gpu_library.hpp"
#include "fedhpc/rounds/row_memory.hpp"

namespace fedhpc {

/// Keeps rows in LibTorch's memory: tensors of bytes. Rows on a device are copied by enqueued work,
/// in the order of the current stream. Copies from and to ordinary host memory wait.
class TensorRowMemory : public RowMemory {
 public:
  void* allocate(std::int64_t bytes) override;
  void free(void* memory) noexcept override;
  void copy_in(void* memory, std::int64_t offset, const void* from, std::int64_t bytes) override;
  void copy_out(const void* memory, std::int64_t offset, void* to,
                std::int64_t bytes) const override;
  void copy_rows_in(void* memory, std::int64_t offset, const Tensor& rows) override;
  void copy_rows_out(const void* memory, std::int64_t offset, const Tensor& rows) const override;
  Tensor rows_in_place(const void* memory, std::int64_t offset, const Tensor& row) const override;

 protected:
  /// Makes a tensor [bytes] uint8; may throw c10::OutOfMemoryError or an Error.
  virtual Tensor make(std::int64_t bytes) = 0;

 private:
  /// Views the memory from the offset on as numbers [numel of `like`] of its type.
  Tensor part(const void* memory, std::int64_t offset, const Tensor& like) const;

  std::unordered_map<const void*, Tensor> blocks_;
};

/// Keeps rows in the memory of a device.
class DeviceRowMemory final : public TensorRowMemory {
 public:
  /// `free_bytes` returns the bytes free on the device now.
  DeviceRowMemory(at::Device device, std::function<std::int64_t()> free_bytes)
      : device_(device), free_bytes_(std::move(free_bytes)) {}
  std::int64_t free_bytes() const override { return free_bytes_(); }

 private:
  Tensor make(std::int64_t bytes) override;

  at::Device device_;
  std::function<std::int64_t()> free_bytes_;
};

/// Keeps rows in pinned host memory: a device copies from and to it while the host goes on.
class PinnedRowMemory final : public TensorRowMemory {
 public:
  explicit PinnedRowMemory(GpuLibrary& library) : library_(library) {}
  std::int64_t free_bytes() const override { return host_memory().free_bytes(); }

 private:
  Tensor make(std::int64_t bytes) override { return library_.lasting_pinned(bytes); }

  GpuLibrary& library_;
};

}  // namespace fedhpc
