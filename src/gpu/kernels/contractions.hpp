#pragma once

#include "fedhpc/factorisations/device_kernels.hpp"

#include "gpu/kernels/kernel.hpp"

// What is left of a Khatri-Rao product's gradient for one of its factors (factorisations/cp.hpp).

namespace fedhpc::kernels {

/// One entry of one client: a sum in the order of what is summed over.
template <typename T>
struct Contract {
  std::int64_t inner;
  Samples<const T> g;
  std::int64_t inner_stride;
  Samples<const T> factor;
  Samples<T> out;
  StackIndex index;

  explicit Contract(const DeviceContraction& of)
      : inner(of.factor.batch),
        g(of.g),
        inner_stride(of.inner_stride),
        factor(of.factor),
        out(of.out),
        index(of.out.batch, of.out.width) {}

  FEDHPC_KERNEL void operator()(std::int64_t i) const {
    const StackIndex::At at = index(i);
    const T* terms = g(at.client, at.sample) + at.value;
    const T* factors = factor(at.client, 0) + at.value;
    T sum{0};
    FEDHPC_UNROLL
    for (std::int64_t s = 0; s < inner; ++s) {
      sum += terms[s * inner_stride] * factors[s * factor.sample_stride];
    }
    out(at.client, at.sample)[at.value] = sum;
  }
};

}  // namespace fedhpc::kernels
