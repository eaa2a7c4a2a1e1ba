#pragma once

#include <type_traits>

#include "fedhpc/math/device_kernels.hpp"

#include "gpu/kernels/matrices.hpp"
#include "gpu/kernels/tiles.hpp"

// Products whose every sum is taken in the order of the inner index: an entry depends on its row
// and its column of the factors, not on what else is computed beside it. Parts of a long inner index
// are summed beside each other, for a weight's gradient has few entries and many terms.

namespace fedhpc::kernels {

/// One tile of one part of one client's product, by a group of kThreads threads.
template <typename T, bool kTurnA, bool kTurnB, int kGroup>
struct TileProduct {
  static constexpr int kThreads = kGroup;
  using A = tile::Pieces<T, kThreads, tile::kRows, !kTurnA>;
  using B = tile::Pieces<T, kThreads, tile::kColumns, kTurnB>;
  using Shared = tile::Buffers<typename A::Held, typename B::Held>;

  std::int64_t rows;
  std::int64_t columns;
  std::int64_t inner;
  T alpha;
  T beta;
  int bits;     // that factors do without
  bool wide_a;  // packs of a factor may be copied
  bool wide_b;
  bool wide;  // kSide entries of the result, from a multiple of it on, may be written as one
  Matrices<const T> a;
  Matrices<const T> b;
  Matrices<T> result;
  Divisor tiles;         // of a part
  Divisor parts;         // of a client
  Divisor tiles_across;  // columns

  explicit TileProduct(const DeviceProduct& of)
      : rows(of.rows),
        columns(of.columns),
        inner(of.inner),
        alpha(is_whole(of) ? static_cast<T>(of.alpha) : T{1}),
        beta(is_whole(of) ? static_cast<T>(of.beta) : T{0}),
        bits(std::is_same_v<T, float> ? missing_bits(of.precision) : 0),
        wide_a(tile::copies_packs<T>(of.a, of.count, kTurnA ? of.rows : of.inner)),
        wide_b(tile::copies_packs<T>(of.b, of.count, kTurnB ? of.inner : of.columns)),
        a(of.a),
        b(of.b),
        result(is_whole(of) ? of.result : parts_of(of)),
        tiles(tiles_of(of)),
        parts(is_whole(of) ? 1 : DeviceProduct::parts_of(of.inner)),
        tiles_across((of.columns + tile::kColumns - 1) / tile::kColumns) {
    wide = reinterpret_cast<std::uintptr_t>(result.data) % sizeof(Pack<T, tile::kSide>) == 0 &&
           result.row_stride % tile::kSide == 0 && result.stack_stride % tile::kSide == 0;
  }

  static bool is_whole(const DeviceProduct& of) { return DeviceProduct::parts_of(of.inner) < 2; }
  /// Groups of a product.
  static std::int64_t groups_of(const DeviceProduct& of) {
    return of.count * (is_whole(of) ? 1 : DeviceProduct::parts_of(of.inner)) * tiles_of(of);
  }
  static std::int64_t tiles_of(const DeviceProduct& of) {
    return (of.rows + tile::kRows - 1) / tile::kRows *
           ((of.columns + tile::kColumns - 1) / tile::kColumns);
  }

  /// The parts' sums as a stack of results.
  static DeviceMatrices parts_of(const DeviceProduct& of) {
    return {.data = of.parts, .stack_stride = of.rows * of.columns, .row_stride = of.columns};
  }

  template <typename Group>
  FEDHPC_KERNEL void operator()(Group& group, std::int64_t g, Shared& shared) const {
    const Split piece = tiles(g);
    const Split client = parts(piece.quotient);
    const Split at = tiles_across(piece.rest);
    const std::int64_t begin = client.rest * DeviceProduct::kPart;
    const std::int64_t row = at.quotient * tile::kRows;
    const std::int64_t column = at.rest * tile::kColumns;
    tile::Sums<T, kThreads> sums;
    sums.clear();
    tile::add_products(
        group, shared, A(a(client.quotient, row, begin), a.row_stride, rows - row, wide_a),
        B(b(client.quotient, begin, column), b.row_stride, columns - column, wide_b),
        smaller(DeviceProduct::kPart, inner - begin), bits, rows - row, columns - column, sums);
    sums.each(static_cast<int>(group.rank()), rows - row, columns - column,
              [&](const T(&of_tile)[tile::kSide][tile::kSide], int i, int j) {
                FEDHPC_UNROLL_ALL
                for (int side = 0; side < tile::kSide; ++side) {
                  if (row + i + side >= rows) return;
                  write(of_tile[side], result(piece.quotient, row + i + side, column + j),
                        columns - column - j);
                }
              });
  }

 private:
  /// The first kSide or, at the result's edge, `room` entries at `out`.
  FEDHPC_KERNEL void write(const T (&sums)[tile::kSide], T* out, std::int64_t room) const {
    if (wide && room >= tile::kSide) {
      Pack<T, tile::kSide> entries{};
      if (beta != T{0}) entries = load<T, tile::kSide>(out);
      FEDHPC_UNROLL_ALL
      for (int j = 0; j < tile::kSide; ++j) write(sums[j], entries.value[j]);
      store(out, entries);
      return;
    }
    FEDHPC_UNROLL_ALL
    for (int j = 0; j < tile::kSide; ++j) {
      if (j < room) write(sums[j], out[j]);
    }
  }
  FEDHPC_KERNEL void write(T sum, T& out) const {
    out = beta == T{0} ? alpha * sum : beta * out + alpha * sum;
  }
};

/// One entry of a result: its parts added in their order.
template <typename T>
struct AddParts {
  std::int64_t count;  // of parts
  std::int64_t entries;
  const T* parts;
  T alpha;
  T beta;
  Matrices<T> result;
  Divisor of_client;  // entries
  Divisor of_row;     // columns

  explicit AddParts(const DeviceProduct& of)
      : count(DeviceProduct::parts_of(of.inner)),
        entries(of.rows * of.columns),
        parts(static_cast<const T*>(of.parts)),
        alpha(static_cast<T>(of.alpha)),
        beta(static_cast<T>(of.beta)),
        result(of.result),
        of_client(entries),
        of_row(of.columns) {}

  FEDHPC_KERNEL void operator()(std::int64_t i) const {
    const Split client = of_client(i);
    const Split at = of_row(client.rest);
    T sum{0};
    FEDHPC_UNROLL
    for (std::int64_t part = 0; part < count; ++part) {
      sum += parts[(client.quotient * count + part) * entries + client.rest];
    }
    T& out = *result(client.quotient, at.quotient, at.rest);
    out = beta == T{0} ? alpha * sum : beta * out + alpha * sum;
  }
};

}  // namespace fedhpc::kernels
