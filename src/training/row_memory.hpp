#pragma once

#include <cstdint>

#include "fedhpc/core/tensor.hpp"

// Where rows lie, and what training keeps beside them. On a device rows that follow each other alike
// go together in packs.

namespace fedhpc {

/// Memory for rows [C, P] of which each begins at a multiple of 128 bytes, as products and accesses
/// of 16 bytes like it.
Tensor rows_in_whole_lines(std::int64_t count, std::int64_t columns,
                           const at::TensorOptions& options);

/// From one row to the next, in values, of memory kept beside `rows` [C, P]: as far as in them.
/// Beside parts of longer rows it is P.
std::int64_t stride_beside(const Tensor& rows);

}  // namespace fedhpc
