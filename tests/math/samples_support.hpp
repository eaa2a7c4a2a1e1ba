#pragma once

#include <cstdint>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include "fedhpc/core/rng.hpp"
#include "fedhpc/core/tensor.hpp"

namespace fedhpc::testing_support {

/// n samples of F normals around `centre`.
inline Tensor normals(std::uint64_t client, std::int64_t n, std::int64_t features,
                      double centre = 0) {
  Draws draws({.seed = 21, .purpose = Purpose::Init, .client = client});
  Tensor x = at::empty({n, features}, at::kDouble);
  auto* value = x.data_ptr<double>();
  for (std::int64_t i = 0; i < n * features; ++i) value[i] = centre + draws.normal();
  return x;
}

inline double entry(const Tensor& x, std::int64_t i, std::int64_t j) {
  return x.to(at::kDouble).contiguous().const_data_ptr<double>()[i * x.size(1) + j];
}

inline double squared_distance(const Tensor& x, std::int64_t i, const Tensor& y, std::int64_t j) {
  const Tensor a = x[i].to(at::kDouble).contiguous();
  const Tensor b = y[j].to(at::kDouble).contiguous();
  double sum = 0;
  for (std::int64_t f = 0; f < a.size(0); ++f) {
    const double difference = a.const_data_ptr<double>()[f] - b.const_data_ptr<double>()[f];
    sum += difference * difference;
  }
  return sum;
}

inline double squared_norm(const Tensor& x) { return x.square().sum().item<double>(); }

inline double largest_difference(const Tensor& a, const Tensor& b) {
  return (a - b).abs().max().item<double>();
}

inline bool all_nan(const Tensor& x) { return x.isnan().all().item<bool>(); }

}  // namespace fedhpc::testing_support
