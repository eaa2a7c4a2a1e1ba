#pragma once

#include <cstdint>
#include <vector>

#include "fedhpc/math/vector_passes.hpp"
#include "fedhpc/models/layout.hpp"

namespace fedhpc {

/// Trainable entries of magnitude `threshold` or less become 0.
void zero_small_(const Rows& rows, double threshold);

/// How many trainable entries of each row are not 0, [C].
std::vector<std::int64_t> count_nonzero(const Rows& rows);

/// Their share of the trainable entries, [C].
std::vector<double> densities(const Rows& rows);

/// <a, a> and <a, b> of two single rows [1, P], over all columns.
InnerProducts inner_products(const Rows& a, const Rows& b);

/// ||row||^2 over the trainable entries, [C], summed in float64 without a copy in it.
std::vector<double> squared_lengths(const Rows& rows);

}  // namespace fedhpc
