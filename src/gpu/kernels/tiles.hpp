#pragma once

#include <cmath>

#include "fedhpc/math/device_kernels.hpp"

#include "gpu/kernels/kernel.hpp"

// Tiles of products. Pieces of the factors, kDepth of the inner index at a time, go through memory that a
// group shares: the next ones are on their way while sums of those at hand are taken. A thread keeps the
// sums of small tiles [kSide, kSide], each in the order of the inner index.

namespace fedhpc::kernels {

/// x y + z, rounded once wherever the processor can: a compiler that chose would choose anew in every
/// loop that it unrolls, and sums of the same terms would differ.
template <typename T>
FEDHPC_KERNEL T multiply_add(T x, T y, T z) {
#if defined(__CUDA_ARCH__)
  return fma(x, y, z);
#elif defined(__FP_FAST_FMA) && defined(__FP_FAST_FMAF)
  return std::fma(x, y, z);
#else
  return x * y + z;
#endif
}

namespace tile {

constexpr int kSide = 4;
constexpr int kRows = 32;
constexpr int kColumns = 64;
constexpr int kDepth = 16;
constexpr int kAcross = kColumns / kSide;
constexpr int kSmallTiles = kRows / kSide * kAcross;

/// A piece of a factor, kDepth of the inner index by kWidth rows or columns. With kAlong, where values
/// that differ in the inner index are neighbours in the device's memory, they are neighbours here; else
/// the inner index comes first. So a pack is copied as it lies.
template <typename T, int kWidth, bool kAlong>
struct Piece {
  static constexpr int kChunk = kPack<T>;
  static constexpr int kChunks = kDepth / kChunk;
  static constexpr int kLine = kAlong ? kDepth + kChunk : kWidth + kSide;

  alignas(Pack<T, kSide>) T values[(kAlong ? kWidth : kDepth) * kLine];

  /// Chunks of the inner index change places, so that eight threads, each with kSide columns, read from
  /// different banks.
  static FEDHPC_KERNEL int turned(int chunk, int i) {
    return chunk ^ ((i / (2 * kSide)) & (kChunks - 1));
  }
  static FEDHPC_KERNEL int place(int k, int i) {
    return kAlong ? i * kLine + turned(k / kChunk, i) * kChunk + k % kChunk : k * kLine + i;
  }

  /// The values of a chunk for kSide rows or columns from `first` on.
  FEDHPC_KERNEL void read(int chunk, int first, T (&x)[kChunk][kSide]) const {
    if constexpr (kAlong) {
      const int at = turned(chunk, first) * kChunk;
      FEDHPC_UNROLL_ALL
      for (int i = 0; i < kSide; ++i) {
        const auto inner = load<T, kChunk>(values + (first + i) * kLine + at);
        FEDHPC_UNROLL_ALL
        for (int k = 0; k < kChunk; ++k) x[k][i] = inner.value[k];
      }
    } else {
      FEDHPC_UNROLL_ALL
      for (int k = 0; k < kChunk; ++k) {
        const auto side = load<T, kSide>(values + (chunk * kChunk + k) * kLine + first);
        FEDHPC_UNROLL_ALL
        for (int i = 0; i < kSide; ++i) x[k][i] = side.value[i];
      }
    }
  }
};

/// What a group of kThreads copies of one factor, piece after piece.
template <typename T, int kThreads, int kWidth, bool kAlong>
class Pieces {
 public:
  using Held = Piece<T, kWidth, kAlong>;
  static_assert(kWidth * DeviceProduct::kTooLong <= std::int64_t{1} << 32);

  /// `from`: the first value of the first piece; `room` of its rows or columns exist. Packs may be
  /// copied if `wide` (see copies_packs()).
  FEDHPC_KERNEL Pieces(const T* from, std::int64_t stride, std::int64_t room, bool wide)
      : from_(from),
        stride_(static_cast<std::uint32_t>(stride)),
        room_(static_cast<int>(smaller(room, kWidth))),
        wide_(wide) {}

  /// Begins to copy the next piece, of which `left` of the inner index exist; the rest becomes 0.
  FEDHPC_KERNEL void copy(int rank, std::int64_t left, Held& to) {
    const int most = static_cast<int>(smaller(left, kDepth));
    if (wide_) {
      each<kPack<T>>(rank, [&](int k, int i, std::uint32_t offset) {
        const bool exists = k < most && i < room_;
        begin_copy<T, kPack<T>>(to.values + Held::place(k, i), from_ + (exists ? offset : 0),
                                exists);
      });
    } else {
      each<1>(rank, [&](int k, int i, std::uint32_t offset) {
        const bool exists = k < most && i < room_;
        begin_copy<T, 1>(to.values + Held::place(k, i), from_ + (exists ? offset : 0), exists);
      });
    }
    from_ += kAlong ? kDepth : static_cast<std::int64_t>(kDepth) * stride_;
  }

  /// Rounds what this thread has copied.
  FEDHPC_KERNEL void round(int rank, int bits, Held& in) const {
    const auto one = [&](int k, int i, std::uint32_t) {
      T& value = in.values[Held::place(k, i)];
      value = without_bits(value, bits);
    };
    if (!wide_) return each<1>(rank, one);
    each<kPack<T>>(rank, [&](int k, int i, std::uint32_t) {
      for (int n = 0; n < kPack<T>; ++n) one(kAlong ? k + n : k, kAlong ? i : i + n, 0);
    });
  }

 private:
  /// Calls work(k, i, where it lies behind from_) for the first of every N neighbours of this thread.
  template <int N, typename Work>
  FEDHPC_KERNEL void each(int rank, const Work& work) const {
    constexpr int kFast = (kAlong ? kDepth : kWidth) / N;
    constexpr int kTurns = kDepth * kWidth / N / kThreads;
    static_assert(kTurns * kThreads * N == kDepth * kWidth);
    FEDHPC_UNROLL_ALL
    for (int turn = 0; turn < kTurns; ++turn) {
      const int number = rank + turn * kThreads;
      const int fast = number % kFast * N;
      const int slow = number / kFast;
      work(kAlong ? fast : slow, kAlong ? slow : fast,
           static_cast<std::uint32_t>(slow) * stride_ + static_cast<std::uint32_t>(fast));
    }
  }

  const T* from_;
  std::uint32_t stride_;
  int room_;
  bool wide_;
};

/// Whether packs of neighbours may be copied from so many matrices whose rows, as they lie in memory, are
/// this long.
template <typename T>
bool copies_packs(const DeviceMatrices& of, std::int64_t count, std::int64_t length) {
  return reinterpret_cast<std::uintptr_t>(of.data) % (kPack<T> * sizeof(T)) == 0 &&
         of.row_stride % kPack<T> == 0 && (count == 1 || of.stack_stride % kPack<T> == 0) &&
         length % kPack<T> == 0;
}

/// A tile's sums, of which each of kThreads threads has some small tiles.
template <typename T, int kThreads>
struct Sums {
  static constexpr int kOwn = kSmallTiles / kThreads;
  static_assert(kSmallTiles % kThreads == 0);

  T of[kOwn][kSide][kSide];

  FEDHPC_KERNEL void clear() {
    FEDHPC_UNROLL_ALL
    for (int own = 0; own < kOwn; ++own) {
      FEDHPC_UNROLL_ALL
      for (int i = 0; i < kSide; ++i) {
        FEDHPC_UNROLL_ALL
        for (int j = 0; j < kSide; ++j) of[own][i][j] = T{0};
      }
    }
  }

  FEDHPC_KERNEL void add(const Sums& more) {
    FEDHPC_UNROLL_ALL
    for (int own = 0; own < kOwn; ++own) {
      FEDHPC_UNROLL_ALL
      for (int i = 0; i < kSide; ++i) {
        FEDHPC_UNROLL_ALL
        for (int j = 0; j < kSide; ++j) of[own][i][j] += more.of[own][i][j];
      }
    }
  }

  /// Calls work(small tile, its first row, its first column) for those of a thread that begin within
  /// the first `rows` and `columns`.
  template <typename Work>
  FEDHPC_KERNEL void each(int rank, std::int64_t rows, std::int64_t columns, const Work& work) {
    FEDHPC_UNROLL_ALL
    for (int own = 0; own < kOwn; ++own) {
      const int small = rank + own * kThreads;
      const int row = small / kAcross * kSide;
      const int column = small % kAcross * kSide;
      if (row < rows && column < columns) work(of[own], row, column);
    }
  }

  /// Adds what a piece of each factor gives.
  template <typename A, typename B>
  FEDHPC_KERNEL void add(int rank, const A& a, const B& b, std::int64_t rows,
                         std::int64_t columns) {
    each(rank, rows, columns, [&](T(&sums)[kSide][kSide], int row, int column) {
      FEDHPC_UNROLL_ALL
      for (int chunk = 0; chunk < A::kChunks; ++chunk) {
        T x[A::kChunk][kSide];
        T y[A::kChunk][kSide];
        a.read(chunk, row, x);
        b.read(chunk, column, y);
        FEDHPC_UNROLL_ALL
        for (int k = 0; k < A::kChunk; ++k) {
          FEDHPC_UNROLL_ALL
          for (int i = 0; i < kSide; ++i) {
            FEDHPC_UNROLL_ALL
            for (int j = 0; j < kSide; ++j) {
              sums[i][j] = multiply_add(x[k][i], y[k][j], sums[i][j]);
            }
          }
        }
      }
    });
  }
};

/// Pieces of both factors, two of each.
template <typename A, typename B>
struct Buffers {
  A a[2];
  B b[2];
};

/// Adds the products over `inner` to the sums. Ends when this thread has done its part: others may still
/// read the buffers.
template <typename Group, typename Tile, typename A, typename B>
FEDHPC_KERNEL void add_products(Group& group, Buffers<typename A::Held, typename B::Held>& buffers,
                                A a, B b, std::int64_t inner, int bits, std::int64_t rows,
                                std::int64_t columns, Tile& sums) {
  if (inner <= 0) return;
  const int rank = static_cast<int>(group.rank());
  a.copy(rank, inner, buffers.a[0]);
  b.copy(rank, inner, buffers.b[0]);
  commit_copies();
  int at = 0;
  for (std::int64_t left = inner; left > 0; left -= kDepth) {
    wait_for_copies();
    if (bits != 0) {
      a.round(rank, bits, buffers.a[at]);
      b.round(rank, bits, buffers.b[at]);
    }
    group.sync();  // these pieces have been copied, the other ones read
    if (left > kDepth) {
      a.copy(rank, left - kDepth, buffers.a[at ^ 1]);
      b.copy(rank, left - kDepth, buffers.b[at ^ 1]);
      commit_copies();
    }
    sums.add(rank, buffers.a[at], buffers.b[at], rows, columns);
    at ^= 1;
  }
}

}  // namespace tile

}  // namespace fedhpc::kernels
