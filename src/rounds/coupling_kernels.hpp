#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fedhpc/core/tensor.hpp"

// Loops of Coupling over one tile: some columns of many clients in float64, side by side, small
// enough for a cache. The result for a client or a pair does not depend on which others are in the
// tile, nor on their number.

namespace fedhpc {

/// Columns of a tile; widths are filled up with zeros, which change neither sum.
constexpr std::int64_t kPairTile = 256;
constexpr std::int64_t kMixTile = 32;

/// tile[positions[r]] = rows[r, first .. first + width) - reference, the rest up to `tile_width`
/// zero. Without positions row r goes to row r. `reference`: width numbers, or nullptr.
void pack_tile(const Tensor& rows, std::int64_t first, std::int64_t width,
               std::span<const std::int64_t> positions, const double* reference,
               std::int64_t tile_width, std::vector<double>& tile);

enum class PairTerm { SquaredDifference, Product };

/// sums[i * b_count + j] += the term of rows i of a and j of b, summed over a tile of kPairTile
/// columns.
void add_pairs(PairTerm term, const double* a, std::int64_t a_count, const double* b,
               std::int64_t b_count, double* sums);

/// A client whose mixture is wanted.
struct MixedClient {
  const double* coefficients;  // [N]
  std::int64_t position;       // in the tile
};

enum class MixTerm { Row, Difference };

/// sums[i] [kMixTile] = sum_j coefficients_j tile[j] of clients[i], in the order of j. With
/// MixTerm::Difference it is tile[i] + sum_j coefficients_j (tile[j] - tile[i]), the sum taken
/// first. Coefficients that are 0 are passed over.
void mix_tile(MixTerm term, std::span<const MixedClient> clients, const std::vector<double>& tile,
              std::vector<double>& sums);

}  // namespace fedhpc
