#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "fedhpc/core/rounded_factors.hpp"

#if defined(__CUDACC__)
#include <cuda_pipeline_primitives.h>
#endif

#define FEDHPC_KERNEL FEDHPC_HOST_DEVICE

// How kernels read and write several values at once: memory of the device, and what a group shares.

namespace fedhpc::kernels {

#if !defined(__CUDA_ARCH__)
/// What a group shares, for a thread of the host that runs its kernels, as long as this lives. A host forgives what ends
/// a kernel on a device, or gives it other numbers; here it is refused or seen: an address of the other kind of
/// memory, one that is no multiple of a pack, memory read before it is written or before a copy is waited for.
class SharedMemory {
 public:
  template <typename Shared>
  explicit SharedMemory(Shared& shared)
      : begin_(reinterpret_cast<const std::byte*>(&shared)), end_(begin_ + sizeof shared) {
    current() = this;
  }
  ~SharedMemory() { current() = nullptr; }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// What a group finds in memory that nobody has written: numbers that are none.
  template <typename Shared>
  static void forget(Shared& shared) {
    static_assert(std::is_trivially_copyable_v<Shared>);
    std::memset(static_cast<void*>(&shared), kUnwritten, sizeof shared);
  }

  /// Throws std::logic_error unless `place` is a multiple of `size` bytes.
  static void expect_multiple(const void* place, std::size_t size) {
    if (reinterpret_cast<std::uintptr_t>(place) % size != 0) {
      throw std::logic_error("a kernel has a pack at an address that is no multiple of its size");
    }
  }
  /// Throws std::logic_error unless all of `size` bytes from `place` on are in what this thread's group shares, or none.
  static void expect(bool shared, const void* place, std::size_t size) {
    const auto* first = static_cast<const std::byte*>(place);
    const SharedMemory* one = current();
    const bool is = one != nullptr && first < one->end_ && first + size > one->begin_;
    const bool whole = is && first >= one->begin_ && first + size <= one->end_;
    if (is != shared || whole != is) {
      throw std::logic_error("a kernel has an address of the other kind of memory");
    }
  }

  static void begin_copy(void* to, const void* from, std::size_t bytes) {
    expect(true, to, bytes);
    std::memset(to, kUnwritten, bytes);
    own().begun_.push_back({to, from, bytes});
  }
  static void commit_copies() {
    std::vector<Copy>& committed = own().committed_;
    committed.insert(committed.end(), own().begun_.begin(), own().begun_.end());
    own().begun_.clear();
  }
  static void wait_for_copies() {
    for (const auto& [to, from, bytes] : own().committed_) {
      from == nullptr ? std::memset(to, 0, bytes) : std::memcpy(to, from, bytes);
    }
    own().committed_.clear();
  }

 private:
  struct Copy {
    void* to;
    const void* from;  // none: zeros
    std::size_t bytes;
  };
  static constexpr int kUnwritten = 0xFF;

  static SharedMemory*& current() {
    thread_local SharedMemory* one = nullptr;
    return one;
  }
  static SharedMemory& own() {
    if (current() == nullptr)
      throw std::logic_error("a kernel copies to memory that it does not share");
    return *current();
  }

  const std::byte* begin_;
  const std::byte* end_;
  std::vector<Copy> begun_;
  std::vector<Copy> committed_;
};
#endif

/// N values that are read and written at once; their address is a multiple of their size.
template <typename T, int N>
struct alignas(N * sizeof(T)) Pack {
  T value[N];
};

template <typename T, int N>
FEDHPC_KERNEL Pack<T, N> load(const T* from) {
#if !defined(__CUDA_ARCH__)
  SharedMemory::expect_multiple(from, sizeof(Pack<T, N>));
#endif
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
/// To memory of the device, not to what a group shares: to the first, nvcc makes N stores of an assignment, and its
/// function for a single one knows no other memory.
template <typename T, int N>
FEDHPC_KERNEL void store(T* to, const Pack<T, N>& pack) {
#if defined(__CUDA_ARCH__)
  if constexpr (N == 4 && sizeof(T) == 4) {
    __stwb(reinterpret_cast<float4*>(to),
           make_float4(pack.value[0], pack.value[1], pack.value[2], pack.value[3]));
    return;
  } else if constexpr (N == 2 && sizeof(T) == 8) {
    __stwb(reinterpret_cast<double2*>(to), make_double2(pack.value[0], pack.value[1]));
    return;
  }
#else
  SharedMemory::expect(false, to, sizeof pack);
  SharedMemory::expect_multiple(to, sizeof pack);
#endif
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}
/// To what the group shares.
template <typename T, int N>
FEDHPC_KERNEL void store_shared(T* to, const Pack<T, N>& pack) {
#if !defined(__CUDA_ARCH__)
  SharedMemory::expect(true, to, sizeof pack);
  SharedMemory::expect_multiple(to, sizeof pack);
#endif
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

/// Begins to copy N values, 16 bytes at most, to memory that the group shares; zeros if they do not
/// exist. They are there for this thread behind wait_for_copies(), for the group behind its next sync().
template <typename T, int N>
FEDHPC_KERNEL void begin_copy(T* to, const T* from, bool exists) {
#if defined(__CUDA_ARCH__)
  constexpr std::size_t kBytes = N * sizeof(T);
  __pipeline_memcpy_async(to, from, kBytes, exists ? 0 : kBytes);
#else
  SharedMemory::expect(false, from, exists ? N * sizeof(T) : 0);
  SharedMemory::expect_multiple(to, N * sizeof(T));
  if (exists) SharedMemory::expect_multiple(from, N * sizeof(T));
  SharedMemory::begin_copy(to, exists ? from : nullptr, N * sizeof(T));
#endif
}
/// Ends a set of copies that this thread has begun.
FEDHPC_KERNEL void commit_copies() {
#if defined(__CUDA_ARCH__)
  __pipeline_commit();
#else
  SharedMemory::commit_copies();
#endif
}
FEDHPC_KERNEL void wait_for_copies() {
#if defined(__CUDA_ARCH__)
  __pipeline_wait_prior(0);
#else
  SharedMemory::wait_for_copies();
#endif
}

}  // namespace fedhpc::kernels
