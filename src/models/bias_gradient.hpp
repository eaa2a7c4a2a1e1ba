#pragma once

#include <cstdint>

#include "fedhpc/models/layer.hpp"

namespace fedhpc {

/// Gives the sink the gradient of a bias of `width` columns from `column` on: the sum of the rows
/// of `output_gradient` [C, rows, width]. Where a ReLU gave `rectified`, that gradient first becomes
/// the one of what the ReLU was given.
void bias_gradient(const Tensor& output_gradient, std::int64_t column, const GradientSink& sink,
                   const Tensor& rectified = {});

}  // namespace fedhpc
