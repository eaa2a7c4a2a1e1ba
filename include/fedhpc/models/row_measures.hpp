#pragma once

#include <cstdint>
#include <vector>

#include "fedhpc/math/vector_passes.hpp"
#include "fedhpc/models/layout.hpp"

namespace fedhpc {

/// Sets trainable entries of magnitude `threshold` or less to 0.
void zero_small_(const Rows& rows, double threshold);

/// Counts the trainable entries of each row that are not 0, [C].
std::vector<std::int64_t> count_nonzero(const Rows& rows);

/// Returns their share of the trainable entries, [C].
std::vector<double> densities(const Rows& rows);

/// Returns <a, a> and <a, b> of two single rows [1, P], over all columns.
InnerProducts inner_products(const Rows& a, const Rows& b);

/// Returns ||row||^2 over the trainable entries, [C], summed in float64 without a copy in it.
std::vector<double> squared_lengths(const Rows& rows);

}  // namespace fedhpc
