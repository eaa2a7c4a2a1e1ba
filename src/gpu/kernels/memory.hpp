#pragma once

#include <cstddef>
#include <stdexcept>

#include "fedhpc/core/rounded_factors.hpp"

#if defined(__CUDACC__)
#include <cuda_pipeline_primitives.h>
#endif

#define FEDHPC_KERNEL FEDHPC_HOST_DEVICE

// How kernels read and write several values at once: memory of the device, and what a group shares.

namespace fedhpc::kernels {

#if !defined(__CUDA_ARCH__)
/// What a group shares, for a thread of the host that runs its kernels, as long as this lives. A device has
/// instructions that are of one kind of memory alone; here an address of the other kind is refused.
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

  /// Throws std::logic_error unless `place` is in what this thread's group shares, or is not.
  static void expect(bool shared, const void* place) {
    const auto* byte = static_cast<const std::byte*>(place);
    const SharedMemory* shares = current();
    const bool is = shares != nullptr && byte >= shares->begin_ && byte < shares->end_;
    if (is != shared) throw std::logic_error("a kernel has an address of the other kind of memory");
  }

 private:
  static const SharedMemory*& current() {
    thread_local const SharedMemory* one = nullptr;
    return one;
  }

  const std::byte* begin_;
  const std::byte* end_;
};
#endif

/// N values that are read and written at once; their address is a multiple of their size.
template <typename T, int N>
struct alignas(N * sizeof(T)) Pack {
  T value[N];
};

template <typename T, int N>
FEDHPC_KERNEL Pack<T, N> load(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
/// To memory of the device, not to what a group shares: nvcc makes N stores of an assignment, and its function for
/// a single one knows no other memory.
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
  SharedMemory::expect(false, to);
#endif
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}
/// To what the group shares.
template <typename T, int N>
FEDHPC_KERNEL void store_shared(T* to, const Pack<T, N>& pack) {
#if !defined(__CUDA_ARCH__)
  SharedMemory::expect(true, to);
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
  SharedMemory::expect(true, to);
  SharedMemory::expect(false, from);
  for (int k = 0; k < N; ++k) to[k] = exists ? from[k] : T{0};
#endif
}
/// Ends a set of copies that this thread has begun.
FEDHPC_KERNEL void commit_copies() {
#if defined(__CUDA_ARCH__)
  __pipeline_commit();
#endif
}
FEDHPC_KERNEL void wait_for_copies() {
#if defined(__CUDA_ARCH__)
  __pipeline_wait_prior(0);
#endif
}

}  // namespace fedhpc::kernels
