#include "models/convolution_tiles.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "math/wide.hpp"

// Register-blocked: a tile of the result stays in registers while all its terms are added. The
// templates are inlined into functions for wide vectors and for those that every CPU has.

namespace fedhpc {

namespace {

/// The vectors of a CPU: bytes of one, and the rows of a tile two vectors wide whose sums fit into
/// the registers.
struct WideVectors {
  static constexpr int kBytes = 64;
  static constexpr int kRows = 12;
};
struct CommonVectors {
  static constexpr int kBytes = 32;
  static constexpr int kRows = 6;
};

template <typename T, typename Vectors>
using Vector = typename Lanes<T, kLanes<T, Vectors>>::Type;

/// M rows and N vectors of windows_product.
template <typename T, typename Vectors, int M, int N>
FEDHPC_INLINE void product_tile(const T* image, const std::int32_t* pixels,
                                std::span<const Run> runs, const T* weights, T* out,
                                const std::int32_t* rows) {
  using V = Vector<T, Vectors>;
  V total[M][N] = {};
  for (const Run& run : runs) {
    const T* at[M];
    for (int m = 0; m < M; ++m) at[m] = image + pixels[m] + run.offset;
    const T* row = weights + run.weight * kTileChannels<T>;
    for (std::int64_t j = 0; j < run.length; ++j) {
      V w[N];
      for (int n = 0; n < N; ++n) w[n] = vector_at<V>(row + n * kLanes<T, Vectors>).value;
      for (int m = 0; m < M; ++m) {
        const T x = at[m][j];
        for (int n = 0; n < N; ++n) total[m][n] += x * w[n];
      }
      row += kTileChannels<T>;
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) {
      vector_at<V>(out + rows[m] + n * kLanes<T, Vectors>).value = total[m][n];
    }
  }
}

/// N vectors of windows_product.
template <typename T, typename Vectors, int N>
FEDHPC_INLINE void product_columns(const T* image, std::span<const std::int32_t> pixels,
                                   std::span<const Run> runs, const T* weights, T* out,
                                   std::span<const std::int32_t> rows) {
  std::size_t n = 0;
  const auto take = [&]<int M>(std::integral_constant<int, M>) {
    for (; n + M <= pixels.size(); n += M) {
      product_tile<T, Vectors, M, N>(image, &pixels[n], runs, weights, out, &rows[n]);
    }
  };
  take(std::integral_constant<int, Vectors::kRows>());
  take(std::integral_constant<int, 4>());
  take(std::integral_constant<int, 1>());
}

template <typename T, typename Vectors>
FEDHPC_INLINE void product_all(const T* image, std::span<const std::int32_t> pixels,
                               std::span<const Run> runs, const T* weights, std::int64_t width,
                               T* out, std::span<const std::int32_t> rows) {
  constexpr int kPair = 2 * kLanes<T, Vectors>;
  for (std::int64_t c = 0; c < width; c += kPair) {
    if (width - c > kLanes<T, Vectors>) {
      product_columns<T, Vectors, 2>(image, pixels, runs, weights + c, out + c, rows);
    } else {
      product_columns<T, Vectors, 1>(image, pixels, runs, weights + c, out + c, rows);
    }
  }
}

/// M rows and N vectors of windows_sums.
template <typename T, typename Vectors, int M, int N>
FEDHPC_INLINE void sums_tile(const T* image, std::span<const std::int32_t> pixels, const T* others,
                             std::span<const std::int32_t> other_pixels, T* sums) {
  using V = Vector<T, Vectors>;
  V total[M][N];
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) {
      total[m][n] = vector_at<V>(sums + m * kTileChannels<T> + n * kLanes<T, Vectors>).value;
    }
  }
  for (std::size_t p = 0; p < pixels.size(); ++p) {
    const T* x = image + pixels[p];
    const T* other = others + other_pixels[p];
    V w[N];
    for (int n = 0; n < N; ++n) w[n] = vector_at<V>(other + n * kLanes<T, Vectors>).value;
    for (int m = 0; m < M; ++m) {
      for (int n = 0; n < N; ++n) total[m][n] += x[m] * w[n];
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < N; ++n) {
      vector_at<V>(sums + m * kTileChannels<T> + n * kLanes<T, Vectors>).value = total[m][n];
    }
  }
}

/// N vectors of windows_sums.
template <typename T, typename Vectors, int N>
FEDHPC_INLINE void sums_columns(const T* image, std::span<const std::int32_t> pixels,
                                std::span<const Run> runs, const T* others,
                                std::span<const std::int32_t> other_pixels, T* sums) {
  for (const Run& run : runs) {
    const T* row = image + run.offset;
    T* of_run = sums + run.weight * kTileChannels<T>;
    std::int64_t left = run.length;
    const auto take = [&]<int M>(std::integral_constant<int, M>) {
      for (; left >= M; left -= M, row += M, of_run += M * kTileChannels<T>) {
        sums_tile<T, Vectors, M, N>(row, pixels, others, other_pixels, of_run);
      }
    };
    take(std::integral_constant<int, Vectors::kRows>());
    take(std::integral_constant<int, Vectors::kRows * 3 / 4>());
    take(std::integral_constant<int, Vectors::kRows / 2>());
    take(std::integral_constant<int, 3>());
    take(std::integral_constant<int, 2>());
    take(std::integral_constant<int, 1>());
  }
}

template <typename T, typename Vectors>
FEDHPC_INLINE void sums_all(const T* image, std::span<const std::int32_t> pixels,
                            std::span<const Run> runs, const T* others,
                            std::span<const std::int32_t> other_pixels, std::int64_t width,
                            T* sums) {
  constexpr int kPair = 2 * kLanes<T, Vectors>;
  // So many places at a time that their values stay in the first cache.
  constexpr std::size_t kPlaces = 128;
  for (std::size_t p = 0; p < pixels.size(); p += kPlaces) {
    const auto some = pixels.subspan(p, std::min(kPlaces, pixels.size() - p));
    const auto other_some = other_pixels.subspan(p, some.size());
    for (std::int64_t c = 0; c < width; c += kPair) {
      if (width - c > kLanes<T, Vectors>) {
        sums_columns<T, Vectors, 2>(image, some, runs, others + c, other_some, sums + c);
      } else {
        sums_columns<T, Vectors, 1>(image, some, runs, others + c, other_some, sums + c);
      }
    }
  }
}

/// One of two rows after an exchange of values: of the upper row those without the bit `step` in
/// their number stay, of the lower row those with it.
template <typename T, int step, bool upper, int... i>
FEDHPC_INLINE Vector<T, CommonVectors> exchanged(const Vector<T, CommonVectors>& first,
                                                 const Vector<T, CommonVectors>& second,
                                                 std::integer_sequence<int, i...>) {
  constexpr int kSize = sizeof...(i);
  return __builtin_shufflevector(
      first, second,
      (((i & step) == 0) ? (upper ? i : i + step) : kSize + (upper ? i - step : i))...);
}

/// A square of values, one vector a side.
template <typename T>
FEDHPC_INLINE void transpose_square(const T* from, std::int64_t from_stride, T* to,
                                    std::int64_t to_stride) {
  using V = Vector<T, CommonVectors>;
  constexpr int kSize = kLanes<T, CommonVectors>;
  constexpr auto kEach = std::make_integer_sequence<int, kSize>();
  V row[kSize];
  for (int r = 0; r < kSize; ++r) row[r] = vector_at<V>(from + r * from_stride).value;
  const auto exchange = [&]<int step>(std::integral_constant<int, step>) {
    if constexpr (step < kSize) {
      for (int r = 0; r < kSize; ++r) {
        if ((r & step) != 0) continue;
        const V first = row[r];
        const V second = row[r + step];
        row[r] = exchanged<T, step, true>(first, second, kEach);
        row[r + step] = exchanged<T, step, false>(first, second, kEach);
      }
    }
  };
  exchange(std::integral_constant<int, 4>());
  exchange(std::integral_constant<int, 2>());
  exchange(std::integral_constant<int, 1>());
  for (int r = 0; r < kSize; ++r) vector_at<V>(to + r * to_stride).value = row[r];
}

template <typename T>
FEDHPC_WIDE void wide_product(const T* image, std::span<const std::int32_t> pixels,
                              std::span<const Run> runs, const T* weights, std::int64_t width,
                              T* out, std::span<const std::int32_t> rows) {
  product_all<T, WideVectors>(image, pixels, runs, weights, width, out, rows);
}

template <typename T>
FEDHPC_WIDE void wide_sums(const T* image, std::span<const std::int32_t> pixels,
                           std::span<const Run> runs, const T* others,
                           std::span<const std::int32_t> other_pixels, std::int64_t width,
                           T* sums) {
  sums_all<T, WideVectors>(image, pixels, runs, others, other_pixels, width, sums);
}

}  // namespace

template <typename T>
void windows_product(const T* image, std::span<const std::int32_t> pixels,
                     std::span<const Run> runs, const T* weights, std::int64_t width, T* out,
                     std::span<const std::int32_t> rows) {
  if (has_wide_vectors()) return wide_product(image, pixels, runs, weights, width, out, rows);
  product_all<T, CommonVectors>(image, pixels, runs, weights, width, out, rows);
}

template <typename T>
void windows_sums(const T* image, std::span<const std::int32_t> pixels, std::span<const Run> runs,
                  const T* others, std::span<const std::int32_t> other_pixels, std::int64_t width,
                  T* sums) {
  if (has_wide_vectors()) {
    return wide_sums(image, pixels, runs, others, other_pixels, width, sums);
  }
  sums_all<T, CommonVectors>(image, pixels, runs, others, other_pixels, width, sums);
}

template <typename T>
void transpose(const T* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns,
               T* to, std::int64_t to_stride) {
  constexpr std::int64_t kSize = kLanes<T, CommonVectors>;
  const std::int64_t whole_rows = rows / kSize * kSize;
  const std::int64_t whole_columns = columns / kSize * kSize;
  for (std::int64_t r = 0; r < whole_rows; r += kSize) {
    for (std::int64_t c = 0; c < whole_columns; c += kSize) {
      transpose_square<T>(from + r * from_stride + c, from_stride, to + c * to_stride + r,
                          to_stride);
    }
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = r < whole_rows ? whole_columns : 0; c < columns; ++c) {
      to[c * to_stride + r] = from[r * from_stride + c];
    }
  }
}

template void transpose(const float*, std::int64_t, std::int64_t, std::int64_t, float*,
                        std::int64_t);
template void transpose(const double*, std::int64_t, std::int64_t, std::int64_t, double*,
                        std::int64_t);
template void windows_product(const float*, std::span<const std::int32_t>, std::span<const Run>,
                              const float*, std::int64_t, float*, std::span<const std::int32_t>);
template void windows_product(const double*, std::span<const std::int32_t>, std::span<const Run>,
                              const double*, std::int64_t, double*, std::span<const std::int32_t>);
template void windows_sums(const float*, std::span<const std::int32_t>, std::span<const Run>,
                           const float*, std::span<const std::int32_t>, std::int64_t, float*);
template void windows_sums(const double*, std::span<const std::int32_t>, std::span<const Run>,
                           const double*, std::span<const std::int32_t>, std::int64_t, double*);

}  // namespace fedhpc
