#pragma once

/// Functions compiled for 512-bit vectors, which only a CPU that has them may call; the rest of the
/// program needs no such CPU. What is inlined into them is compiled so, too.
#if defined(__x86_64__)
#define FEDHPC_WIDE __attribute__((target("arch=x86-64-v4")))
#else
#define FEDHPC_WIDE
#endif
#define FEDHPC_INLINE inline __attribute__((always_inline))

namespace fedhpc {

/// True where such functions can run, unless FEDHPC_CPU=avx2 says that none shall.
bool has_wide_vectors();

/// V values of T that are added and multiplied together.
template <typename T, int V>
struct Lanes {
  typedef T Type __attribute__((vector_size(V * sizeof(T))));
};

/// A vector among numbers. A struct keeps its alignment as a template argument; a typedef does not.
template <typename Vector>
struct __attribute__((packed, may_alias)) Unaligned {
  Vector value;
};

/// Of kernels that are compiled twice: how many values a vector of so many bytes has.
template <typename T, typename Vectors>
constexpr int kLanes = Vectors::kBytes / static_cast<int>(sizeof(T));

/// The vector at any address.
template <typename Vector>
FEDHPC_INLINE Unaligned<Vector>& vector_at(void* address) {
  return *static_cast<Unaligned<Vector>*>(address);
}
template <typename Vector>
FEDHPC_INLINE const Unaligned<Vector>& vector_at(const void* address) {
  return *static_cast<const Unaligned<Vector>*>(address);
}

}  // namespace fedhpc
