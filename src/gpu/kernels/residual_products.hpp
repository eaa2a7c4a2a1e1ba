#pragma once

#include "fedhpc/factorisations/device_kernels.hpp"

#include "gpu/kernels/matrices.hpp"
#include "gpu/kernels/tiles.hpp"

// What factors lack of weights, times a factor: the gradients of 1/2 ||[[A]] - w||^2. The residual is made
// tile by tile in memory that a group shares, and used there.

namespace fedhpc::kernels {

/// tile::kRows rows of one client's result.
template <typename T, int kGroup>
struct ResidualProduct {
  static constexpr int kThreads = kGroup;
  using Own = tile::Pieces<T, kThreads, tile::kRows, true>;
  using Other = tile::Pieces<T, kThreads, tile::kColumns, true>;
  using Factor = tile::Pieces<T, kThreads, tile::kColumns, false>;
  using Residual = tile::Piece<T, tile::kRows, false>;
  using Tile = tile::Sums<T, kThreads>;
  static constexpr int kPieces = tile::kColumns / tile::kDepth;  // of a tile of residuals

  struct Shared {
    union {
      tile::Buffers<typename Own::Held, typename Other::Held> composed;
      typename Factor::Held factors[2];
    };
    Residual residual[kPieces];
  };

  std::int64_t rows;
  std::int64_t columns;
  std::int64_t rank;
  T scale;
  bool wide_own;
  bool wide_other;
  Matrices<const T> own;
  Matrices<const T> other;
  Matrices<const T> w;
  Matrices<T> out;
  Divisor tiles;  // of a client

  explicit ResidualProduct(const DeviceResidualProduct& of)
      : rows(of.rows),
        columns(of.columns),
        rank(of.rank),
        scale(static_cast<T>(of.scale)),
        wide_own(tile::copies_packs<T>(of.own, of.count, of.rank)),
        wide_other(tile::copies_packs<T>(of.other, of.count, of.rank)),
        own(of.own),
        other(of.other),
        w(of.w),
        out(of.out),
        tiles(tiles_of(of)) {}

  static std::int64_t tiles_of(const DeviceResidualProduct& of) {
    return (of.rows + tile::kRows - 1) / tile::kRows;
  }

  template <typename Group>
  FEDHPC_KERNEL void operator()(Group& group, std::int64_t g, Shared& shared) const {
    const Split at = tiles(g);
    const std::int64_t c = at.quotient;
    const std::int64_t row = at.rest * tile::kRows;
    Tile sums;
    for (std::int64_t column = 0; column < columns; column += tile::kColumns) {
      take_residual(group, c, row, column, shared);
      // Sums of one tile of the result stay where they are, those of several lie in the result meanwhile.
      for (std::int64_t first = 0; first < rank; first += tile::kColumns) {
        if (column == 0) {
          sums.clear();
        } else if (rank > tile::kColumns) {
          each_sum(group, c, row, first, sums, [](T& sum, const T& value) { sum = value; });
        }
        add_residual(group, c, row, column, first, shared, sums);
        const T by = column + tile::kColumns < columns ? T{1} : scale;
        if (rank > tile::kColumns || column + tile::kColumns >= columns) {
          each_sum(group, c, row, first, sums, [by](const T& sum, T& value) { value = by * sum; });
        }
      }
    }
  }

 private:
  /// shared.residual = own other^T - w of these rows and columns, 0 beyond them.
  template <typename Group>
  FEDHPC_KERNEL void take_residual(Group& group, std::int64_t c, std::int64_t row,
                                   std::int64_t column, Shared& shared) const {
    const int thread = static_cast<int>(group.rank());
    Tile composed;
    composed.clear();
    for (std::int64_t first = 0; first < rank; first += DeviceProduct::kPart) {
      Tile part;
      part.clear();
      if (first > 0) group.sync();  // the buffers have been read
      tile::add_products(
          group, shared.composed, Own(own(c, row, first), own.row_stride, rows - row, wide_own),
          Other(other(c, column, first), other.row_stride, columns - column, wide_other),
          smaller(DeviceProduct::kPart, rank - first), 0, tile::kRows, tile::kColumns, part);
      composed.add(part);
    }
    composed.each(thread, tile::kRows, tile::kColumns,
                  [&](const T(&of)[tile::kSide][tile::kSide], int i, int j) {
                    FEDHPC_UNROLL_ALL
                    for (int l = 0; l < tile::kSide; ++l) {
                      Pack<T, tile::kSide> side;
                      FEDHPC_UNROLL_ALL
                      for (int k = 0; k < tile::kSide; ++k) {
                        const bool exists = row + i + k < rows && column + j + l < columns;
                        side.value[k] =
                            exists ? of[k][l] - *w(c, row + i + k, column + j + l) : T{0};
                      }
                      Residual& piece = shared.residual[(j + l) / tile::kDepth];
                      store_shared(piece.values + Residual::place((j + l) % tile::kDepth, i), side);
                    }
                  });
    group.sync();  // the residual is there, the buffers have been read
  }

  /// sums += residual other of the columns of `other` from `first` on.
  template <typename Group>
  FEDHPC_KERNEL void add_residual(Group& group, std::int64_t c, std::int64_t row,
                                  std::int64_t column, std::int64_t first, Shared& shared,
                                  Tile& sums) const {
    const int thread = static_cast<int>(group.rank());
    Factor factor(other(c, column, first), other.row_stride, rank - first, wide_other);
    const std::int64_t left = smaller(columns - column, tile::kColumns);
    factor.copy(thread, left, shared.factors[0]);
    commit_copies();
    for (int piece = 0; piece * tile::kDepth < left; ++piece) {
      wait_for_copies();
      group.sync();  // this piece has been copied, the other one read
      const std::int64_t next = static_cast<std::int64_t>(piece + 1) * tile::kDepth;
      if (next < left) {
        factor.copy(thread, left - next, shared.factors[(piece + 1) % 2]);
        commit_copies();
      }
      sums.add(thread, shared.residual[piece], shared.factors[piece % 2], rows - row, rank - first);
    }
    group.sync();  // all has been read
  }

  /// Calls work(sum, value) for this thread's sums and values of the result.
  template <typename Group, typename Work>
  FEDHPC_KERNEL void each_sum(Group& group, std::int64_t c, std::int64_t row, std::int64_t first,
                              Tile& sums, const Work& work) const {
    sums.each(static_cast<int>(group.rank()), rows - row, rank - first,
              [&](T(&of)[tile::kSide][tile::kSide], int i, int j) {
                FEDHPC_UNROLL_ALL
                for (int k = 0; k < tile::kSide; ++k) {
                  FEDHPC_UNROLL_ALL
                  for (int l = 0; l < tile::kSide; ++l) {
                    if (row + i + k < rows && first + j + l < rank) {
                      work(of[k][l], *out(c, row + i + k, first + j + l));
                    }
                  }
                }
              });
  }
};

}  // namespace fedhpc::kernels
