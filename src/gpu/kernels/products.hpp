#pragma once

#include "fedhpc/math/device_kernels.hpp"

#include "gpu/kernels/kernel.hpp"

// Products whose every sum is taken in the order of the inner index: an entry depends on its row
// and its column of the factors, not on what else is computed beside it. Parts of a long inner index
// are summed beside each other, for a weight's gradient has few entries and many terms.

namespace fedhpc::kernels {

/// x y + z, in one instruction where there is one.
template <typename T>
FEDHPC_KERNEL T multiply_add(T x, T y, T z) {
#if defined(__CUDA_ARCH__)
  return fma(x, y, z);
#else
  return x * y + z;
#endif
}

/// op(X) of all clients, typed.
template <typename T>
struct Matrices {
  T* data;
  std::int64_t stack_stride;
  std::int64_t row_stride;
  bool transposed;

  explicit Matrices(const DeviceMatrices& of)
      : data(static_cast<T*>(of.data)),
        stack_stride(of.stack_stride),
        row_stride(of.row_stride),
        transposed(of.transposed) {}

  FEDHPC_KERNEL T* operator()(std::int64_t c, std::int64_t i, std::int64_t j) const {
    return data + c * stack_stride + (transposed ? j * row_stride + i : i * row_stride + j);
  }
};

/// One tile [kRows, kColumns] of one part of one client's product, by a group of kThreads threads.
/// Pieces of the factors, kDepth of the inner index at a time, go through memory that the group shares; a
/// thread keeps the sums of small tiles [kSide, kSide].
template <typename T, int kGroup>
struct TileProduct {
  static constexpr int kThreads = kGroup;
  static constexpr int kSide = 4;
  static constexpr int kRows = 32;
  static constexpr int kColumns = 64;
  static constexpr int kDepth = 16;
  static constexpr int kAcross = kColumns / kSide;
  static constexpr int kSmallTiles = kRows / kSide * kAcross;
  static constexpr int kOwn = kSmallTiles / kThreads;  // small tiles of a thread
  static_assert(kSmallTiles % kThreads == 0);

  /// With the inner index first; rows stay aligned, and neighbours of a column are in other banks.
  struct Shared {
    alignas(Pack<T, kSide>) T a[kDepth][kRows + kSide];
    alignas(Pack<T, kSide>) T b[kDepth][kColumns + kSide];
  };

  std::int64_t rows;
  std::int64_t columns;
  std::int64_t inner;
  T alpha;
  T beta;
  int bits;   // that factors do without
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
        bits(missing_bits(of.precision)),
        a(of.a),
        b(of.b),
        result(is_whole(of) ? of.result : parts_of(of)),
        tiles(tiles_of(of)),
        parts(is_whole(of) ? 1 : DeviceProduct::parts_of(of.inner)),
        tiles_across((of.columns + kColumns - 1) / kColumns) {
    wide = reinterpret_cast<std::uintptr_t>(result.data) % sizeof(Pack<T, kSide>) == 0 &&
           result.row_stride % kSide == 0 && result.stack_stride % kSide == 0;
  }

  static bool is_whole(const DeviceProduct& of) { return DeviceProduct::parts_of(of.inner) < 2; }
  /// Groups of a product.
  static std::int64_t groups_of(const DeviceProduct& of) {
    return of.count * (is_whole(of) ? 1 : DeviceProduct::parts_of(of.inner)) * tiles_of(of);
  }
  static std::int64_t tiles_of(const DeviceProduct& of) {
    return (of.rows + kRows - 1) / kRows * ((of.columns + kColumns - 1) / kColumns);
  }

  /// The parts' sums as a stack of results.
  static DeviceMatrices parts_of(const DeviceProduct& of) {
    return {.data = of.parts, .stack_stride = of.rows * of.columns, .row_stride = of.columns};
  }

  template <typename Group>
  FEDHPC_KERNEL void operator()(Group& group, std::int64_t g, Shared& shared) const {
    const Split piece = tiles(g);
    const Split client = parts(piece.quotient);
    const Split tile = tiles_across(piece.rest);
    const std::int64_t begin = client.rest * DeviceProduct::kPart;
    const std::int64_t end = smaller(begin + DeviceProduct::kPart, inner);
    const std::int64_t row = tile.quotient * kRows;
    const std::int64_t column = tile.rest * kColumns;
    T sums[kOwn][kSide][kSide] = {};
    for (std::int64_t first = begin; first < end; first += kDepth) {
      fetch<kRows>(group, shared.a, first, end, row, rows, !a.transposed,
                   [&](std::int64_t k, std::int64_t i) { return *a(client.quotient, i, k); });
      fetch<kColumns>(group, shared.b, first, end, column, columns, b.transposed,
                      [&](std::int64_t k, std::int64_t j) { return *b(client.quotient, k, j); });
      group.sync();  // all has been fetched
      add(group, shared, rows - row, columns - column, sums);
      group.sync();  // all has been read
    }
    FEDHPC_UNROLL_ALL
    for (int own = 0; own < kOwn; ++own) {
      const int small = static_cast<int>(group.rank()) + own * kThreads;
      const std::int64_t at_row = row + small / kAcross * kSide;
      const std::int64_t at_column = column + small % kAcross * kSide;
      FEDHPC_UNROLL_ALL
      for (int i = 0; i < kSide; ++i) {
        if (at_row + i < rows && at_column < columns) {
          write(sums[own][i], result(piece.quotient, at_row + i, at_column), columns - at_column);
        }
      }
    }
  }

 private:
  /// piece[k][i] = value(first + k, begin + i), 0 beyond a factor's end. Neighbours in memory are
  /// fetched by neighbours in the group: `along` says whether they differ in k.
  template <int kWidth, typename Group, typename Value>
  FEDHPC_KERNEL void fetch(Group& group, T (&piece)[kDepth][kWidth + kSide], std::int64_t first,
                           std::int64_t last, std::int64_t begin, std::int64_t end, bool along,
                           const Value& value) const {
    constexpr int kTurns = kDepth * kWidth / kThreads;
    T fetched[kTurns];
    int at[kTurns];
    FEDHPC_UNROLL_ALL
    for (int turn = 0; turn < kTurns; ++turn) {
      const int number = static_cast<int>(group.rank()) + turn * kThreads;
      const int k = along ? number % kDepth : number / kWidth;
      const int i = along ? number / kDepth : number % kWidth;
      const bool within = first + k < last && begin + i < end;
      fetched[turn] = within ? value(first + k, begin + i) : T{0};
      at[turn] = k * (kWidth + kSide) + i;
    }
    FEDHPC_UNROLL_ALL
    for (int turn = 0; turn < kTurns; ++turn) {
      (&piece[0][0])[at[turn]] = without_bits(fetched[turn], bits);
    }
  }

  /// What the pieces add to the small tiles that begin within the result.
  template <typename Group>
  FEDHPC_KERNEL void add(Group& group, const Shared& shared, std::int64_t rows_left,
                         std::int64_t columns_left, T (&sums)[kOwn][kSide][kSide]) const {
    FEDHPC_UNROLL_ALL
    for (int own = 0; own < kOwn; ++own) {
      const int small = static_cast<int>(group.rank()) + own * kThreads;
      if (small / kAcross * kSide >= rows_left || small % kAcross * kSide >= columns_left) continue;
      FEDHPC_UNROLL_ALL
      for (int k = 0; k < kDepth; ++k) {
        const auto x = load<T, kSide>(shared.a[k] + small / kAcross * kSide);
        const auto y = load<T, kSide>(shared.b[k] + small % kAcross * kSide);
        FEDHPC_UNROLL_ALL
        for (int i = 0; i < kSide; ++i) {
          FEDHPC_UNROLL_ALL
          for (int j = 0; j < kSide; ++j) {
            T& sum = sums[own][i][j];
            sum = multiply_add(x.value[i], y.value[j], sum);
          }
        }
      }
    }
  }

  /// The first kSide or, at the result's edge, `room` entries at `out`.
  FEDHPC_KERNEL void write(const T (&sums)[kSide], T* out, std::int64_t room) const {
    if (wide && room >= kSide) {
      Pack<T, kSide> entries{};
      if (beta != T{0}) entries = load<T, kSide>(out);
      FEDHPC_UNROLL_ALL
      for (int j = 0; j < kSide; ++j) write(sums[j], entries.value[j]);
      store(out, entries);
      return;
    }
    FEDHPC_UNROLL_ALL
    for (int j = 0; j < kSide; ++j) {
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
