#pragma once

#include "fedhpc/models/layer.hpp"

namespace fedhpc {

/// The shape with dimensions of length 1 in front, `count` in all.
Shape with_dimensions(const Shape& shape, std::size_t count);

/// Whether values of this shape can be repeated to have the shape `to`.
bool broadcasts(const Shape& shape, const Shape& to);

/// to = the sums of `from` over the dimensions in which `to` has length 1; both have as many
/// dimensions. Nothing is done where they are the same memory.
void sum_to(const Tensor& from, const Tensor& to, const Arithmetic& arithmetic);

}  // namespace fedhpc
