#include "fedhpc/core/allocation_meter.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <malloc.h>

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

namespace fedhpc {

namespace {

std::atomic<std::int64_t> held{0};
std::atomic<std::int64_t> most{0};

void free_counted(void* memory) {
  if (memory == nullptr) return;
  held -= static_cast<std::int64_t>(malloc_usable_size(memory));
  c10::free_cpu(memory);
}

/// LibTorch's allocator of host memory, counted.
class CountingAllocator final : public at::Allocator {
 public:
  at::DataPtr allocate(std::size_t bytes) override {
    void* memory = c10::alloc_cpu(bytes);
    if (memory != nullptr) {
      held += static_cast<std::int64_t>(malloc_usable_size(memory));
      most = std::max(most.load(), held.load());
    }
    return {memory, memory, &free_counted, at::kCPU};
  }
  at::DeleterFnPtr raw_deleter() const override { return &free_counted; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

}  // namespace

AllocationMeter::AllocationMeter() {
  static CountingAllocator allocator;
  constexpr std::uint8_t kAboveTheUsual = 1;
  c10::SetCPUAllocator(&allocator, kAboveTheUsual);
  restart();
}

void AllocationMeter::restart() { most = held.load(); }

std::int64_t AllocationMeter::peak() const { return most; }

}  // namespace fedhpc
