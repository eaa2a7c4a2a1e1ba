#pragma once

#include <vector>

#include "fedhpc/models/layer.hpp"

namespace fedhpc {

/// A stack [C, B, width] as [C, B, shape...], a view.
inline Tensor shaped(const Tensor& stack, const Shape& shape) {
  std::vector<std::int64_t> sizes{stack.size(0), stack.size(1)};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  return stack.view(sizes);
}

/// The dimension of a shaped stack that is a sample's dimension d.
constexpr std::int64_t in_stack(std::size_t d) { return static_cast<std::int64_t>(d) + 2; }

/// Client c's samples, one after the other.
template <typename T>
T* samples_of(const Tensor& stack, std::int64_t c) {
  return stack.data_ptr<T>() + c * stack.stride(0);
}

}  // namespace fedhpc
