#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include <c10/core/Allocator.h>

#include "standin/late_streams.hpp"

namespace fedhpc::standin {

/// Blocks that were freed while a recording may still use them: like the private pool of a CUDA
/// graph, they serve others once the recording is gone.
class BlockPool {
 public:
  ~BlockPool();
  void keep(void* block, std::size_t size) { blocks_.emplace_back(block, size); }

 private:
  std::vector<std::pair<void*, std::size_t>> blocks_;
};

/// Memory of the stand-in's device. Its pages are mapped twice: the addresses that tensors have
/// cannot be touched, so that code of the host which follows one faults; operations of the device
/// reach the same bytes by another address. Free memory is NaN, and a block is followed by bytes
/// that nobody may write.
class DeviceMemory {
 public:
  static DeviceMemory& get();

  /// Memory of the current stream.
  void* allocate(std::size_t bytes);
  /// The memory is free once its stream has come to this, and the others that use it.
  void free(void* block) noexcept;
  /// Work on another stream uses a block.
  void used_by(void* block, StreamKey stream);
  /// Ends the process if something has written behind a block: `what` did if nothing had before.
  void check_blocks(const char* what);

  bool holds(const void* address) const {
    const auto* byte = static_cast<const char*>(address);
    return byte >= device_ && byte < device_ + kCapacity;
  }
  /// Where an operation finds what lies at `address`; addresses of the host are their own.
  template <typename T>
  T* reach(T* address) const {
    return holds(address) ? reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(address) + shift_)
                          : address;
  }
  /// From reach() as a number to add to an address.
  std::uintptr_t shift() const { return shift_; }

  /// What is allocated from now on belongs to the pool; null: to nobody.
  void use_pool(std::shared_ptr<BlockPool> pool) { pool_ = std::move(pool); }

 private:
  friend class BlockPool;
  struct Block {
    std::size_t bytes;
    std::size_t size;
    std::shared_ptr<BlockPool> pool;
    StreamKey stream;
    std::set<StreamKey> users{};
  };

  static constexpr std::size_t kCapacity = std::size_t{1} << 36;
  static constexpr std::size_t kAlignment = 512;

  DeviceMemory();
  bool is_intact(void* address, const Block& block) const;
  void release(void* block) noexcept;
  void give_back(void* block, std::size_t size);

  char* device_ = nullptr;
  std::uintptr_t shift_ = 0;
  std::mutex mutex_;
  std::size_t used_ = 0;
  std::map<std::size_t, std::vector<void*>> free_;
  std::unordered_map<void*, Block> blocks_;
  std::shared_ptr<BlockPool> pool_;
};

/// Memory of the host that the device may copy from and to without the host's waiting.
class PinnedMemory {
 public:
  static PinnedMemory& get();

  void* allocate(std::size_t bytes);
  void free(void* block) noexcept;
  bool holds(const void* address);

 private:
  std::mutex mutex_;
  std::map<std::uintptr_t, std::size_t> blocks_;
};

/// LibTorch's ways to both.
c10::Allocator& device_allocator();
c10::Allocator& pinned_allocator();

}  // namespace fedhpc::standin
