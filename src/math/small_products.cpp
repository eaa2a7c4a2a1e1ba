#include "math/small_products.hpp"

#include <cstring>

#include "math/wide.hpp"

// Register-blocked products of small batches: the tile of the result stays in registers, both
// factors are read where they lie. The templates are inlined into functions for wide vectors and
// for those that every CPU has.

namespace fedhpc {

namespace {

/// The vectors of a CPU: bytes of one, and the sums that the registers hold beside factors: rows, and
/// columns in vectors, of a tile.
struct WideVectors {
  static constexpr int kBytes = 64;
  static constexpr int kRows = 4;
  static constexpr int kColumns = 4;
};
struct CommonVectors {
  static constexpr int kBytes = 32;
  static constexpr int kRows = 3;
  static constexpr int kColumns = 4;
};

template <typename T, int V>
FEDHPC_INLINE T sum(const typename Lanes<T, V>::Type& lanes) {
  if constexpr (V == 1) {
    return lanes[0];
  } else {
    struct {
      typename Lanes<T, V / 2>::Type low, high;
    } halves;
    std::memcpy(&halves, &lanes, sizeof halves);
    const typename Lanes<T, V / 2>::Type both = halves.low + halves.high;
    return sum<T, V / 2>(both);
  }
}

template <typename T>
FEDHPC_INLINE bool reads_old(const Target<T>& c) {
  return c.beta != T{0};
}
template <typename T>
FEDHPC_INLINE bool reads_old(const PulledTarget<T>&) {
  return true;
}

/// Brings to the cache what the store at a place will read: sums take their time.
template <typename T>
FEDHPC_INLINE void fetch(const Target<T>&, std::int64_t) {}
template <typename T>
FEDHPC_INLINE void fetch(const PulledTarget<T>& c, std::int64_t place) {
  __builtin_prefetch(c.data + place, /*rw=*/1);
  __builtin_prefetch(c.centre + place);
}

/// Writes sums, of V columns or of one, where `out` points.
template <typename Value, typename T>
FEDHPC_INLINE void store(const Target<T>& c, T* out, const Value& sums) {
  auto& result = vector_at<Value>(out);
  if (c.beta == T{0}) {
    result.value = c.alpha * sums;
  } else {
    result.value = c.beta * result.value + c.alpha * sums;
  }
}
template <typename Value, typename T>
FEDHPC_INLINE void store(const PulledTarget<T>& c, T* out, const Value& sums) {
  auto& result = vector_at<Value>(out);
  const Value w = result.value;
  // The 0 keeps the pull a number of its own, as it is in penalised_step_: no multiplication is
  // left that could be fused with the addition of the sums.
  const Value pull = T{0} + c.mu * (w - vector_at<Value>(c.centre + (out - c.data)).value);
  result.value = w - c.lr * (pull + sums);
}

/// M rows and N vectors of V columns of a target of op(A) B: the columns from `column` on,
/// those of the last vector from `last` on, of which only the last `fresh` are new.
template <typename T, int V, int M, int N, typename To>
FEDHPC_INLINE void outer_tile(const Factor<T>& a, std::int64_t row, const T* b,
                              std::int64_t b_stride, std::int64_t inner, const To& c,
                              std::int64_t column, std::int64_t last, std::int64_t fresh) {
  using Vector = typename Lanes<T, V>::Type;
  const auto begin = [=](int n) { return n == N - 1 ? last : column + n * V; };
  Vector total[M][N] = {};
  const T* left = a.data + row * a.row_stride;
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) fetch(c, (row + m) * c.row_stride + begin(n));
  }
  for (std::int64_t k = 0; k < inner; ++k) {
    for (int m = 0; m < M; ++m) {
      const T factor = left[m * a.row_stride + k * a.step];
      for (int n = 0; n < N; ++n) {
        total[m][n] += factor * vector_at<Vector>(b + k * b_stride + begin(n)).value;
      }
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) {
      T* out = c.data + (row + m) * c.row_stride + begin(n);
      if (n == N - 1 && fresh < V && reads_old(c)) {
        for (int v = V - static_cast<int>(fresh); v < V; ++v) store<T>(c, out + v, total[m][n][v]);
      } else {
        store<Vector>(c, out, total[m][n]);
      }
    }
  }
}

/// All rows of N vectors of columns.
template <typename T, int V, int R, int N, typename To>
FEDHPC_INLINE void outer_rows(const Factor<T>& a, const T* b, std::int64_t b_stride,
                              std::int64_t inner, const To& c, std::int64_t column,
                              std::int64_t last, std::int64_t fresh) {
  std::int64_t row = 0;
  for (; row + R <= c.rows; row += R) {
    outer_tile<T, V, R, N>(a, row, b, b_stride, inner, c, column, last, fresh);
  }
  for (; row < c.rows; ++row) {
    outer_tile<T, V, 1, N>(a, row, b, b_stride, inner, c, column, last, fresh);
  }
}

/// All rows of as many whole column groups of N vectors as fit; returns the first column left.
template <typename T, int V, int R, int N, typename To>
FEDHPC_INLINE std::int64_t outer_columns(const Factor<T>& a, const T* b, std::int64_t b_stride,
                                         std::int64_t inner, const To& c, std::int64_t column) {
  for (; column + V * N <= c.columns; column += V * N) {
    outer_rows<T, V, R, N>(a, b, b_stride, inner, c, column, column + V * (N - 1), V);
  }
  return column;
}

template <typename T, typename Vectors, typename To>
FEDHPC_INLINE void outer_all(const Factor<T>& a, const T* b, std::int64_t b_stride,
                             std::int64_t inner, const To& c) {
  constexpr int kWidth = kLanes<T, Vectors>;
  constexpr int kRows = Vectors::kRows;
  std::int64_t column =
      outer_columns<T, kWidth, kRows, Vectors::kColumns>(a, b, b_stride, inner, c, 0);
  const std::int64_t left = c.columns - column;
  if (left > 0 && c.columns >= kWidth) {
    // The rest in vectors of full width, the last of which computes some columns again.
    const std::int64_t last = c.columns - kWidth;
    const std::int64_t vectors = (left + kWidth - 1) / kWidth;
    const std::int64_t fresh = left - (vectors - 1) * kWidth;
    if (vectors == 4)
      outer_rows<T, kWidth, kRows, 4>(a, b, b_stride, inner, c, column, last, fresh);
    if (vectors == 3)
      outer_rows<T, kWidth, kRows, 3>(a, b, b_stride, inner, c, column, last, fresh);
    if (vectors == 2)
      outer_rows<T, kWidth, kRows, 2>(a, b, b_stride, inner, c, column, last, fresh);
    if (vectors == 1)
      outer_rows<T, kWidth, kRows, 1>(a, b, b_stride, inner, c, column, last, fresh);
    return;
  }
  column = outer_columns<T, kWidth, kRows, 1>(a, b, b_stride, inner, c, column);
  column = outer_columns<T, kWidth / 4, kRows, 1>(a, b, b_stride, inner, c, column);
  outer_columns<T, 1, kRows, 1>(a, b, b_stride, inner, c, column);
}

/// M rows and N columns of C = alpha A B^T + beta C: sums along the contiguous inner dimension.
template <typename T, int V, int M, int N>
FEDHPC_INLINE void inner_tile(const T* a, std::int64_t a_stride, const T* b, std::int64_t b_stride,
                              std::int64_t inner, T* c, const Target<T>& target) {
  using Vector = typename Lanes<T, V>::Type;
  Vector total[M][N] = {};
  std::int64_t k = 0;
  for (; k + V <= inner; k += V) {
    for (int m = 0; m < M; ++m) {
      for (int n = 0; n < N; ++n) {
        total[m][n] += vector_at<Vector>(a + m * a_stride + k).value *
                       vector_at<Vector>(b + n * b_stride + k).value;
      }
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) {
      T value = sum<T, V>(total[m][n]);
      for (std::int64_t i = k; i < inner; ++i) value += a[m * a_stride + i] * b[n * b_stride + i];
      T& out = c[m * target.row_stride + n];
      out = target.alpha * value + (target.beta == T{0} ? T{0} : target.beta * out);
    }
  }
}

template <typename T, typename Vectors, int N>
FEDHPC_INLINE void inner_rows(const T* a, std::int64_t a_stride, const T* b, std::int64_t b_stride,
                              std::int64_t inner, T* c, const Target<T>& target) {
  constexpr int kWidth = kLanes<T, Vectors>;
  constexpr int kRows = Vectors::kRows;
  std::int64_t row = 0;
  for (; row + kRows <= target.rows; row += kRows) {
    inner_tile<T, kWidth, kRows, N>(a + row * a_stride, a_stride, b, b_stride, inner,
                                    c + row * target.row_stride, target);
  }
  for (; row < target.rows; ++row) {
    inner_tile<T, kWidth, 1, N>(a + row * a_stride, a_stride, b, b_stride, inner,
                                c + row * target.row_stride, target);
  }
}

template <typename T, typename Vectors>
FEDHPC_INLINE void inner_all(const T* a, std::int64_t a_stride, const T* b, std::int64_t b_stride,
                             std::int64_t inner, const Target<T>& c) {
  // Rows of B are the weights: each is read once, the batch comes again from the cache.
  std::int64_t column = 0;
  constexpr int kColumns = Vectors::kColumns;
  for (; column + kColumns <= c.columns; column += kColumns) {
    inner_rows<T, Vectors, kColumns>(a, a_stride, b + column * b_stride, b_stride, inner,
                                     c.data + column, c);
  }
  for (; column < c.columns; ++column) {
    inner_rows<T, Vectors, 1>(a, a_stride, b + column * b_stride, b_stride, inner, c.data + column,
                              c);
  }
}

template <typename T, typename To>
FEDHPC_WIDE void wide_outer(const Factor<T>& a, const T* b, std::int64_t b_stride,
                            std::int64_t inner, const To& c) {
  outer_all<T, WideVectors>(a, b, b_stride, inner, c);
}

template <typename T, typename To>
void outer(const Factor<T>& a, const T* b, std::int64_t b_stride, std::int64_t inner, const To& c) {
  if (has_wide_vectors()) return wide_outer(a, b, b_stride, inner, c);
  outer_all<T, CommonVectors>(a, b, b_stride, inner, c);
}

template <typename T>
FEDHPC_WIDE void wide_inner(const T* a, std::int64_t a_stride, const T* b, std::int64_t b_stride,
                            std::int64_t inner, const Target<T>& c) {
  inner_all<T, WideVectors>(a, a_stride, b, b_stride, inner, c);
}

}  // namespace

template <typename T>
void small_product(const Factor<T>& a, const T* b, std::int64_t b_stride, std::int64_t inner,
                   const Target<T>& c) {
  outer(a, b, b_stride, inner, c);
}

template <typename T>
void small_product(const Factor<T>& a, const T* b, std::int64_t b_stride, std::int64_t inner,
                   const PulledTarget<T>& c) {
  outer(a, b, b_stride, inner, c);
}

template <typename T>
void small_product_transposed(const T* a, std::int64_t a_stride, const T* b, std::int64_t b_stride,
                              std::int64_t inner, const Target<T>& c) {
  if (has_wide_vectors()) return wide_inner(a, a_stride, b, b_stride, inner, c);
  inner_all<T, CommonVectors>(a, a_stride, b, b_stride, inner, c);
}

template void small_product(const Factor<float>&, const float*, std::int64_t, std::int64_t,
                            const Target<float>&);
template void small_product(const Factor<double>&, const double*, std::int64_t, std::int64_t,
                            const Target<double>&);
template void small_product(const Factor<float>&, const float*, std::int64_t, std::int64_t,
                            const PulledTarget<float>&);
template void small_product(const Factor<double>&, const double*, std::int64_t, std::int64_t,
                            const PulledTarget<double>&);
template void small_product_transposed(const float*, std::int64_t, const float*, std::int64_t,
                                       std::int64_t, const Target<float>&);
template void small_product_transposed(const double*, std::int64_t, const double*, std::int64_t,
                                       std::int64_t, const Target<double>&);

}  // namespace fedhpc
