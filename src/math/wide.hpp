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

}  // namespace fedhpc
