#pragma once

#include "fedhpc/core/range.hpp"
#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

/// <x_c, x_c> and, with y, <x_c, y_c> over these columns: [1, C] or [2, C]
/// in float64 on the device, from rows x and y [C, n] there. What a row gets depends on its own
/// values and the ranges alone, to the last bit. Copies no rows and does not wait.
Tensor row_products_on_device(const Tensor& x, const Tensor& y, const ColumnRanges& ranges);

/// The sums of rows [C, n] of a device, [C] float64 there, likewise.
Tensor row_sums_on_device(const Tensor& x);

}  // namespace fedhpc
