#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

/// Returns <x_c, x_c> and, with y, <x_c, y_c> over columns [begin, end) of these ranges: [1, C] or
/// [2, C] in float64. Rows x and y [C, n] are on the device, and so is the result. A row's result
/// depends on its own values and the ranges alone, to the last bit. Copies no rows and does not
/// wait.
Tensor row_products_on_device(const Tensor& x, const Tensor& y,
                              const std::vector<std::pair<std::int64_t, std::int64_t>>& ranges);

}  // namespace fedhpc
