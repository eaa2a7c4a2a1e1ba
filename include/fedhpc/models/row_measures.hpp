#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "fedhpc/models/row_numbers.hpp"

namespace fedhpc {

/// Sets trainable entries of magnitude `threshold` or less to 0.
void zero_small_(const Rows& rows, double threshold);

/// Counts the trainable entries of each row that are not 0, [C].
std::vector<std::int64_t> count_nonzero(const Rows& rows);

/// Returns their share of the trainable entries, [C].
std::vector<double> densities(const Rows& rows);

/// How many runs of equal neighbours each row has, over all columns, [C].
std::vector<std::int64_t> count_plateaus(const Rows& rows);

/// <a_c, a_c> and <a_c, b_c> of each row, over all columns, in float64 and one pass.
struct RowProducts {
  RowNumbers aa;
  RowNumbers ab;
};
/// Of rows [C, P]; b may be a single row.
RowProducts inner_products(const Rows& a, const Rows& b);

/// <a_c, b_c> of rows [C, P] over the columns [begin, end) of each of L ranges: [C, L], float64, in
/// host memory.
Tensor inner_products(const Rows& a, const Rows& b, const ColumnRanges& ranges);

/// ||row||^2 over the trainable entries among some, summed in float64 without a copy in it.
RowNumbers squared_lengths(const Rows& rows, const Columns& among = {});

/// 1 / ||row|| over the trainable entries; 0 for a row of zeros.
RowNumbers inverse_lengths(const Rows& rows);

/// Shortens rows that are longer than `most` over these entries, as torch.nn.utils.clip_grad_norm_
/// does: row <- row min(1, most / (||row|| + 1e-6)). A row's result depends on it alone, to the last
/// bit. Returns the lengths before, [C]. The host does not wait for a device. Precondition: `most` is
/// above 0.
RowNumbers clip_(const Rows& rows, double most, const Columns& among = {});

}  // namespace fedhpc
