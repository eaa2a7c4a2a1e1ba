#include "fedhpc/rounds/row_memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <unistd.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

class HostMemory final : public RowMemory {
 public:
  void* allocate(std::int64_t bytes) override {
    return std::malloc(static_cast<std::size_t>(bytes));
  }
  void free(void* memory) noexcept override { std::free(memory); }
  void copy_in(void* memory, std::int64_t offset, const void* from, std::int64_t bytes) override {
    std::memcpy(static_cast<char*>(memory) + offset, from, static_cast<std::size_t>(bytes));
  }
  void copy_out(const void* memory, std::int64_t offset, void* to,
                std::int64_t bytes) const override {
    std::memcpy(to, static_cast<const char*>(memory) + offset, static_cast<std::size_t>(bytes));
  }
  const void* readable(const void* memory) const override { return memory; }
  std::int64_t free_bytes() const override {
    return std::int64_t{sysconf(_SC_AVPHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  }
};

}  // namespace

void RowMemory::copy_rows_in(void* memory, std::int64_t offset, const Tensor& rows) {
  const Tensor host = on_host(rows);
  copy_in(memory, offset, host.const_data_ptr(), static_cast<std::int64_t>(host.nbytes()));
}

void RowMemory::copy_rows_out(const void* memory, std::int64_t offset, const Tensor& rows) const {
  const HostEdit host(rows);
  copy_out(memory, offset, host.values().data_ptr(), static_cast<std::int64_t>(rows.nbytes()));
}

RowMemory& host_memory() {
  static HostMemory memory;  // without state
  return memory;
}

RowPlacement::RowPlacement(RowMemory* device, RowMemory& host,
                           std::optional<std::int64_t> device_budget)
    : device_(device), host_(host), device_left_(0) {
  if (device_ == nullptr) return;
  device_left_ = device_budget ? *device_budget : device_->free_bytes() / 2;
}

RowPlacement::Piece RowPlacement::place(std::int64_t rows, std::int64_t row_bytes) {
  require(rows > 0 && row_bytes > 0, "memory for at least one row");
  Piece piece;
  const std::int64_t fitting = std::min(rows, device_left_ / row_bytes);
  if (fitting > 0) {
    piece = {MemoryBlock(*device_, fitting * row_bytes), fitting, true};
    device_left_ -= piece.block.bytes();
  }
  if (piece.block.empty()) piece = {MemoryBlock(host_, rows * row_bytes), rows, false};
  if (piece.block.empty()) throw std::bad_alloc();
  return piece;
}

void RowPlacement::release(Piece& piece) {
  if (piece.on_device) device_left_ += piece.block.bytes();
  piece = Piece{};
}

}  // namespace fedhpc
