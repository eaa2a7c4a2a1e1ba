#include "rounds/coupling_kernels.hpp"

#include <algorithm>

#include "math/wide.hpp"

namespace fedhpc {

namespace {

/// Numbers that are added and multiplied together. Their count is part of the result: it says which
/// partial sums there are.
constexpr int kWidth = 4;
using Vector = Lanes<double, kWidth>::Type;

template <PairTerm term>
FEDHPC_INLINE Vector add_term(Vector total, Vector a, Vector b) {
  if constexpr (term == PairTerm::Product) return total + a * b;
  const Vector difference = a - b;
  return total + difference * difference;
}

/// M rows of a with N rows of b.
template <PairTerm term, int M, int N>
FEDHPC_INLINE void pair_block(const double* a, const double* b, double* sums, std::int64_t stride) {
  Vector total[M][N] = {};
  for (std::int64_t k = 0; k < kPairTile; k += kWidth) {
    for (int m = 0; m < M; ++m) {
      const Vector left = vector_at<Vector>(a + m * kPairTile + k).value;
      for (int n = 0; n < N; ++n) {
        total[m][n] =
            add_term<term>(total[m][n], left, vector_at<Vector>(b + n * kPairTile + k).value);
      }
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) {
      const Vector& lanes = total[m][n];
      sums[m * stride + n] += (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
    }
  }
}

constexpr int kRowsOfA = 2;
constexpr int kRowsOfB = 4;  // 8 sums, 4 + 1 rows: 13 of 16 registers

template <PairTerm term, int N>
void pair_rows(const double* a, std::int64_t a_count, const double* b, double* sums,
               std::int64_t stride) {
  std::int64_t i = 0;
  for (; i + kRowsOfA <= a_count; i += kRowsOfA) {
    pair_block<term, kRowsOfA, N>(a + i * kPairTile, b, sums + i * stride, stride);
  }
  for (; i < a_count; ++i) {
    pair_block<term, 1, N>(a + i * kPairTile, b, sums + i * stride, stride);
  }
}

template <PairTerm term>
void all_pairs(const double* a, std::int64_t a_count, const double* b, std::int64_t b_count,
               double* sums) {
  std::int64_t j = 0;
  for (; j + kRowsOfB <= b_count; j += kRowsOfB) {
    pair_rows<term, kRowsOfB>(a, a_count, b + j * kPairTile, sums + j, b_count);
  }
  for (; j < b_count; ++j) {
    pair_rows<term, 1>(a, a_count, b + j * kPairTile, sums + j, b_count);
  }
}

template <MixTerm term>
void mix_clients(std::span<const MixedClient> clients, const std::vector<double>& tile,
                 std::vector<double>& sums) {
  constexpr int kVectors = kMixTile / kWidth;
  // So many rows of the tile stay in the nearest cache while the clients take their turn. The sums
  // pass through memory between such groups, which changes no bit.
  constexpr std::int64_t kGroup = 64;
  const auto count = static_cast<std::int64_t>(tile.size()) / kMixTile;
  sums.assign(clients.size() * kMixTile, 0.0);
  for (std::int64_t begin = 0; begin < count; begin += kGroup) {
    const std::int64_t end = std::min(count, begin + kGroup);
    for (std::size_t i = 0; i < clients.size(); ++i) {
      const double* own = tile.data() + clients[i].position * kMixTile;
      double* sum = sums.data() + i * kMixTile;
      Vector total[kVectors];
      for (int v = 0; v < kVectors; ++v) total[v] = vector_at<Vector>(sum + v * kWidth).value;
      for (std::int64_t j = begin; j < end; ++j) {
        const double factor = clients[i].coefficients[j];
        if (factor == 0) continue;
        const double* row = tile.data() + j * kMixTile;
        for (int v = 0; v < kVectors; ++v) {
          Vector part = vector_at<Vector>(row + v * kWidth).value;
          if constexpr (term == MixTerm::Difference)
            part -= vector_at<Vector>(own + v * kWidth).value;
          total[v] += factor * part;
        }
      }
      for (int v = 0; v < kVectors; ++v) vector_at<Vector>(sum + v * kWidth).value = total[v];
    }
  }
  if constexpr (term == MixTerm::Difference) {
    for (std::size_t i = 0; i < clients.size(); ++i) {
      const double* own = tile.data() + clients[i].position * kMixTile;
      for (std::int64_t k = 0; k < kMixTile; ++k) sums[i * kMixTile + k] += own[k];
    }
  }
}

}  // namespace

void pack_tile(const Tensor& rows, std::int64_t first, std::int64_t width,
               std::span<const std::int64_t> positions, const double* reference,
               std::int64_t tile_width, std::vector<double>& tile) {
  const std::int64_t count = rows.size(0);
  tile.resize(static_cast<std::size_t>(count * tile_width));
  with_type(rows.scalar_type(), [&]<typename T>() {
    for (std::int64_t r = 0; r < count; ++r) {
      const T* from = rows.const_data_ptr<T>() + r * rows.stride(0) + first;
      const std::int64_t row = positions.empty() ? r : positions[static_cast<std::size_t>(r)];
      double* to = tile.data() + row * tile_width;
      if (reference == nullptr) {
        for (std::int64_t k = 0; k < width; ++k) to[k] = static_cast<double>(from[k]);
      } else {
        for (std::int64_t k = 0; k < width; ++k) {
          to[k] = static_cast<double>(from[k]) - reference[k];
        }
      }
      std::fill(to + width, to + tile_width, 0.0);
    }
  });
}

void add_pairs(PairTerm term, const double* a, std::int64_t a_count, const double* b,
               std::int64_t b_count, double* sums) {
  if (term == PairTerm::Product) {
    all_pairs<PairTerm::Product>(a, a_count, b, b_count, sums);
  } else {
    all_pairs<PairTerm::SquaredDifference>(a, a_count, b, b_count, sums);
  }
}

void mix_tile(MixTerm term, std::span<const MixedClient> clients, const std::vector<double>& tile,
              std::vector<double>& sums) {
  if (term == MixTerm::Row) {
    mix_clients<MixTerm::Row>(clients, tile, sums);
  } else {
    mix_clients<MixTerm::Difference>(clients, tile, sums);
  }
}

}  // namespace fedhpc
