#pragma once

#include <cstdint>
#include <optional>

#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

/// A kind of memory that holds clients' rows: a device's, or the host's (pinned where a device
/// reads it). Only the kind itself reads its addresses, unless it says that they are the host's. It
/// exchanges rows with ordinary host memory, or with tensors on a device.
class RowMemory {
 public:
  virtual ~RowMemory() = default;

  /// Allocates `bytes` > 0, or returns nullptr when there is no memory left.
  virtual void* allocate(std::int64_t bytes) = 0;
  virtual void free(void* memory) noexcept = 0;
  /// memory[offset ...] = from, which lies in ordinary host memory.
  virtual void copy_in(void* memory, std::int64_t offset, const void* from, std::int64_t bytes) = 0;
  /// to = memory[offset ...]; `to` lies in ordinary host memory.
  virtual void copy_out(const void* memory, std::int64_t offset, void* to,
                        std::int64_t bytes) const = 0;
  /// memory[offset ...] = rows, contiguous, which lie on a device; enqueued.
  virtual void copy_rows_in(void* memory, std::int64_t offset, const Tensor& rows);
  /// rows = memory[offset ...]; `rows`, contiguous, lie on a device; enqueued.
  virtual void copy_rows_out(const void* memory, std::int64_t offset, const Tensor& rows) const;
  /// Returns `memory` from the offset on as a tensor like `row`, if both are on the same device;
  /// else undefined.
  virtual Tensor rows_in_place(const void* /*memory*/, std::int64_t /*offset*/,
                               const Tensor& /*row*/) const {
    return {};
  }
  /// Returns the address at which the host reads `memory` in place, or nullptr.
  virtual const void* readable(const void* /*memory*/) const { return nullptr; }
  /// The bytes that could still be allocated.
  virtual std::int64_t free_bytes() const = 0;
};

/// Ordinary host memory. `free_bytes` tells what the machine has free for all its ranks together.
RowMemory& host_memory();

/// Owns one allocation. A move leaves it empty. Its RowMemory outlives it.
class MemoryBlock {
 public:
  MemoryBlock() = default;
  /// Empty when the memory has nothing left.
  MemoryBlock(RowMemory& memory, std::int64_t bytes)
      : memory_(&memory), data_(memory.allocate(bytes)), bytes_(data_ == nullptr ? 0 : bytes) {}
  ~MemoryBlock() { reset(); }
  MemoryBlock(MemoryBlock&& other) noexcept { take(other); }
  MemoryBlock& operator=(MemoryBlock&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  MemoryBlock(const MemoryBlock&) = delete;
  MemoryBlock& operator=(const MemoryBlock&) = delete;

  bool empty() const { return data_ == nullptr; }
  std::int64_t bytes() const { return bytes_; }
  void copy_in(std::int64_t offset, const void* from, std::int64_t bytes) {
    memory_->copy_in(data_, offset, from, bytes);
  }
  void copy_out(std::int64_t offset, void* to, std::int64_t bytes) const {
    memory_->copy_out(data_, offset, to, bytes);
  }
  void copy_rows_in(std::int64_t offset, const Tensor& rows) {
    memory_->copy_rows_in(data_, offset, rows);
  }
  void copy_rows_out(std::int64_t offset, const Tensor& rows) const {
    memory_->copy_rows_out(data_, offset, rows);
  }
  Tensor rows_in_place(std::int64_t offset, const Tensor& row) const {
    return memory_->rows_in_place(data_, offset, row);
  }
  /// Returns memory[offset ...] where the host reads it in place, else nullptr.
  const void* readable(std::int64_t offset) const {
    const auto* start = static_cast<const char*>(memory_->readable(data_));
    return start == nullptr ? nullptr : start + offset;
  }

 private:
  void take(MemoryBlock& other) noexcept {
    memory_ = other.memory_;
    data_ = other.data_;
    bytes_ = other.bytes_;
    other.data_ = nullptr;
    other.bytes_ = 0;
  }
  void reset() noexcept {
    if (data_ != nullptr) memory_->free(data_);
    data_ = nullptr;
    bytes_ = 0;
  }

  RowMemory* memory_ = nullptr;
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

/// Bytes held in either kind of memory.
struct StoreBytes {
  std::int64_t device = 0;
  std::int64_t host = 0;

  StoreBytes& operator+=(const StoreBytes& other) {
    device += other.device;
    host += other.host;
    return *this;
  }
};

/// Gives rows their place: on the device until its budget is used up, then in host memory. The
/// first rows to come stay, and nothing moves afterwards. A cohort is drawn anew every round, so
/// the rows on the device are as likely to be wanted next as any others. Moving them would cost two
/// copies for nothing.
class RowPlacement {
 public:
  struct Piece {
    MemoryBlock block;
    std::int64_t rows = 0;  ///< as many as were asked for, or fewer where less fits on the device
    bool on_device = false;
  };

  /// `device`: nullptr where host memory is the device's own. `device_budget` [bytes]: none
  /// takes half of what is free on the device now and leaves the rest to training.
  RowPlacement(RowMemory* device, RowMemory& host, std::optional<std::int64_t> device_budget);

  /// Allocates memory for 1 to `rows` rows. Throws std::bad_alloc when there is none at all.
  Piece place(std::int64_t rows, std::int64_t row_bytes);
  /// Gives a piece back.
  void release(Piece& piece);

 private:
  RowMemory* device_;
  RowMemory& host_;
  std::int64_t device_left_;
};

}  // namespace fedhpc
