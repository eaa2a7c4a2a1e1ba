#pragma once

// LibTorch's vectors, of the processors that this build is for. A function of a vector gives the
// same bits at every place of a run. ATen's operators do not: their loops end in scalar functions,
// so that a client's numbers would depend on who stands beside it.
#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define CPU_CAPABILITY AVX512
#define CPU_CAPABILITY_AVX512
#elif defined(__AVX2__) && defined(__FMA__)
#define CPU_CAPABILITY AVX2
#define CPU_CAPABILITY_AVX2
#endif

#include <ATen/cpu/vec/functional.h>

namespace fedhpc {

template <typename T>
using Vector = at::vec::Vectorized<T>;

/// A vector of this number at every place.
template <typename V>
V all_of(double number) {
  return V(static_cast<typename V::value_type>(number));
}

}  // namespace fedhpc
