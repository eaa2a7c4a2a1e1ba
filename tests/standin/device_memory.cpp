#include "standin/device_memory.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#include "fedhpc/core/error.hpp"

#include "standin/device.hpp"

namespace fedhpc::standin {

namespace {

constexpr int kFree = 0xFF;            // every float of such bytes is NaN
constexpr std::size_t kRedZone = 512;  // bytes behind a block

/// Sizes of blocks: multiples of 512 bytes that grow by an eighth, so that few lists serve all.
std::size_t block_size(std::size_t bytes, std::size_t alignment) {
  std::size_t step = alignment;
  while (step * 16 < bytes) step *= 2;
  return (bytes + step - 1) / step * step;
}

bool is_free(const void* start, std::size_t bytes) {
  const auto* byte = static_cast<const unsigned char*>(start);
  return bytes == 0 || (*byte == kFree && std::memcmp(byte, byte + 1, bytes - 1) == 0);
}

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::abort();
}

/// Maps a file to an address that is a multiple of 2^32, so that two such addresses of a byte
/// differ in the upper halves alone: what lies beside the lower half in a structure stays as it is.
void* map(int file, std::size_t bytes, int protection) {
  constexpr std::uintptr_t kMultiple = std::uintptr_t{1} << 32;
  void* reserved = mmap(nullptr, bytes + kMultiple, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) fail("memory of the stand-in device");
  const auto first = reinterpret_cast<std::uintptr_t>(reserved);
  auto* start = static_cast<char*>(reserved) + (kMultiple - first % kMultiple) % kMultiple;
  void* mapped = mmap(start, bytes, protection, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, file, 0);
  if (mapped == MAP_FAILED) fail("memory of the stand-in device");
  return mapped;
}

}  // namespace

BlockPool::~BlockPool() {
  for (const auto& [block, size] : blocks_) DeviceMemory::get().give_back(block, size);
}

// Never destroyed: tensors may outlive every other object of the process.
DeviceMemory& DeviceMemory::get() {
  static auto* memory = new DeviceMemory;
  return *memory;
}

DeviceMemory::DeviceMemory() {
  const int file = memfd_create("fedhpc_standin", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, kCapacity) != 0) fail("memory of the stand-in device");
  void* device = map(file, kCapacity, PROT_NONE);
  void* reachable = map(file, kCapacity, PROT_READ | PROT_WRITE);
  madvise(reachable, kCapacity, MADV_DONTDUMP);
  close(file);
  device_ = static_cast<char*>(device);
  shift_ = reinterpret_cast<std::uintptr_t>(reachable) - reinterpret_cast<std::uintptr_t>(device);
}

void* DeviceMemory::allocate(std::size_t bytes) {
  const std::size_t size = block_size(bytes + kRedZone, kAlignment);
  const std::lock_guard lock(mutex_);
  void* block = nullptr;
  auto& list = free_[size];
  if (!list.empty()) {
    block = list.back();
    list.pop_back();
    if (Device::computes() && !is_free(reach(block), size)) {
      std::fputs(
          "an operation of the stand-in device has written to memory that was free; "
          "FEDHPC_STANDIN_CHECK=1 tells which\n",
          stderr);
      std::abort();
    }
  } else {
    if (size > kCapacity - used_) throw Error("the stand-in device is out of memory");
    block = device_ + used_;
    used_ += size;
    if (Device::computes()) std::memset(reach(block), kFree, size);
  }
  blocks_[block] = {bytes, size, pool_, Device::get().stream()};
  return block;
}

void DeviceMemory::used_by(void* block, StreamKey stream) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(block);  // none of no bytes
  if (found != blocks_.end()) found->second.users.insert(stream);
}

void DeviceMemory::free(void* block) noexcept {
  Device& device = Device::get();
  Block freed;
  {
    const std::lock_guard lock(mutex_);
    freed = blocks_.at(block);
  }
  StreamKey stream = freed.stream;
  if (!freed.users.empty()) {  // no stream waits for that
    stream = LateStreams::of_frees(freed.stream);
    device.wait(stream, device.mark(freed.stream));
    for (const StreamKey& user : freed.users) device.wait(stream, device.mark(user));
  }
  device.enqueue(stream, [this, block] { release(block); });
}

void DeviceMemory::release(void* block) noexcept {
  std::shared_ptr<BlockPool> pool;  // ends after the lock
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(block);
  const Block freed = std::move(found->second);
  blocks_.erase(found);
  if (Device::computes() && !is_intact(block, freed)) {
    std::fputs(
        "an operation of the stand-in device has written behind a block of its memory; "
        "FEDHPC_STANDIN_CHECK=1 tells which\n",
        stderr);
    std::abort();
  }
  if (Device::computes()) std::memset(reach(block), kFree, freed.bytes);
  if (freed.pool != nullptr && Device::computes()) {
    freed.pool->keep(block, freed.size);
    pool = freed.pool;
  } else {
    free_[freed.size].push_back(block);
  }
}

bool DeviceMemory::is_intact(void* address, const Block& block) const {
  return is_free(static_cast<const char*>(reach(address)) + block.bytes, block.size - block.bytes);
}

void DeviceMemory::check_blocks(const char* what) {
  const std::lock_guard lock(mutex_);
  for (const auto& [address, block] : blocks_) {
    if (is_intact(address, block)) continue;
    std::fprintf(stderr, "%s has written behind a block of %zu bytes\n", what, block.bytes);
    std::abort();
  }
  for (const auto& [size, list] : free_) {
    for (const void* block : list) {
      if (is_free(reach(block), size)) continue;
      std::fprintf(stderr, "%s has written to a free block of up to %zu bytes\n", what, size);
      std::abort();
    }
  }
}

void DeviceMemory::give_back(void* block, std::size_t size) {
  if (Device::computes()) {
    std::memset(reach(block), kFree, size);  // the recording has used it after it was freed
  }
  const std::lock_guard lock(mutex_);
  free_[size].push_back(block);
}

PinnedMemory& PinnedMemory::get() {
  static auto* memory = new PinnedMemory;
  return *memory;
}

void* PinnedMemory::allocate(std::size_t bytes) {
  void* block = std::aligned_alloc(64, (bytes / 64 + 1) * 64);
  if (block == nullptr) throw Error("out of pinned memory");
  const std::lock_guard lock(mutex_);
  blocks_[reinterpret_cast<std::uintptr_t>(block)] = std::max<std::size_t>(bytes, 1);
  return block;
}

void PinnedMemory::free(void* block) noexcept {
  const std::lock_guard lock(mutex_);
  blocks_.erase(reinterpret_cast<std::uintptr_t>(block));
  std::free(block);
}

bool PinnedMemory::holds(const void* address) {
  const auto number = reinterpret_cast<std::uintptr_t>(address);
  const std::lock_guard lock(mutex_);
  auto next = blocks_.upper_bound(number);
  if (next == blocks_.begin()) return false;
  --next;
  return number < next->first + next->second;
}

namespace {

class DeviceAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* block = bytes > 0 ? DeviceMemory::get().allocate(bytes) : nullptr;
    return {block, block, raw_deleter(), Device::get().current()};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return [](void* block) {
      if (block != nullptr) DeviceMemory::get().free(block);
    };
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(DeviceMemory::get().reach(to), DeviceMemory::get().reach(from), bytes);
  }
};

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* block = PinnedMemory::get().allocate(bytes);
    return {block, block, raw_deleter(), c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return [](void* block) { PinnedMemory::get().free(block); };
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

}  // namespace

c10::Allocator& device_allocator() {
  static auto* allocator = new DeviceAllocator;
  return *allocator;
}

c10::Allocator& pinned_allocator() {
  static auto* allocator = new PinnedAllocator;
  return *allocator;
}

}  // namespace fedhpc::standin
