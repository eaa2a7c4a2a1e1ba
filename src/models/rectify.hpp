#pragma once

#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

/// y = max(x, 0), stacks [C, B, width] on the host or a device; y may be x.
void rectify(const Tensor& x, const Tensor& y);

/// dx = dy where y > 0, else 0; dx may be dy.
void rectify_gradient(const Tensor& y, const Tensor& dy, const Tensor& dx);

}  // namespace fedhpc
