#pragma once

#include <cstdint>

#include "math/wide.hpp"

// The sums of F(2x2, 3x3) for vectors of channels: Winograd says what they are.

namespace fedhpc {

/// So many tiles at a time that their numbers stay in the second cache; whole tiles of products.
constexpr std::int64_t kTilesAtOnce = 48;

struct WideVectors {
  static constexpr int kBytes = 64;
};
struct CommonVectors {
  static constexpr int kBytes = 32;
};
template <typename T, typename Vectors = CommonVectors>
using Vector = typename Lanes<T, kLanes<T, Vectors>>::Type;

/// Channels are taken in whole vectors of float32.
constexpr std::int64_t kChannels = kLanes<float, CommonVectors>;

/// B^T d of one column.
template <typename V>
FEDHPC_INLINE void see(const V& a, const V& b, const V& c, const V& d, V (&seen)[4]) {
  seen[0] = a - c;
  seen[1] = b + c;
  seen[2] = c - b;
  seen[3] = b - d;
}

/// A^T m of one column.
template <typename V>
FEDHPC_INLINE void reduce(const V& a, const V& b, const V& c, const V& d, V (&y)[2]) {
  y[0] = a + b + c;
  y[1] = b - c - d;
}

/// A y of one column.
template <typename V>
FEDHPC_INLINE void spread(const V& a, const V& b, V (&m)[4]) {
  m[0] = a;
  m[1] = a + b;
  m[2] = a - b;
  m[3] = -b;
}

/// G g of one column.
template <typename V>
FEDHPC_INLINE void widen(const V& a, const V& b, const V& c, V (&u)[4]) {
  u[0] = a;
  u[1] = (a + b + c) / 2;
  u[2] = (a - b + c) / 2;
  u[3] = c;
}

/// G^T u of one column.
template <typename V>
FEDHPC_INLINE void narrow(const V& a, const V& b, const V& c, const V& d, V (&g)[3]) {
  g[0] = a + (b + c) / 2;
  g[1] = (b - c) / 2;
  g[2] = (b + c) / 2 + d;
}

/// Tiles side by side, and the four lines of inputs that they see.
template <typename T>
struct TilesOfRow {
  const T* lines[4] = {};  // [width, channels]
  std::int64_t left;       // the first tile's first place, which may lie outside
  std::int64_t count;
  std::int64_t width;
  std::int64_t channels;
};

/// B^T d of the column at a place, from channel c.
template <typename Vectors, typename T>
FEDHPC_INLINE void see_column(const TilesOfRow<T>& tiles, std::int64_t place, std::int64_t c,
                              Vector<T, Vectors> (&column)[4]) {
  using V = Vector<T, Vectors>;
  if (place < 0 || place >= tiles.width) {
    for (int i = 0; i < 4; ++i) column[i] = V{};
    return;
  }
  const std::int64_t at = place * tiles.channels + c;
  V d[4];
  for (int i = 0; i < 4; ++i) d[i] = vector_at<V>(tiles.lines[i] + at).value;
  see(d[0], d[1], d[2], d[3], column);
}

/// d [16, kTilesAtOnce, channels] = B^T d B. Neighbours share two columns.
template <typename T, typename Vectors>
FEDHPC_INLINE void see_tiles(const TilesOfRow<T>& tiles, T* d) {
  using V = Vector<T, Vectors>;
  const std::int64_t of_number = kTilesAtOnce * tiles.channels;
  for (std::int64_t c = 0; c < tiles.channels; c += kLanes<T, Vectors>) {
    V columns[4][4] = {};
    std::int64_t place = tiles.left;
    see_column<Vectors>(tiles, place, c, columns[2]);
    see_column<Vectors>(tiles, place + 1, c, columns[3]);
    T* to = d + c;
    for (std::int64_t n = 0; n < tiles.count; ++n, place += 2, to += tiles.channels) {
      for (int i = 0; i < 4; ++i) {
        columns[0][i] = columns[2][i];
        columns[1][i] = columns[3][i];
      }
      see_column<Vectors>(tiles, place + 2, c, columns[2]);
      see_column<Vectors>(tiles, place + 3, c, columns[3]);
      for (int i = 0; i < 4; ++i) {
        V row[4];
        see(columns[0][i], columns[1][i], columns[2][i], columns[3][i], row);
        for (int k = 0; k < 4; ++k) {
          vector_at<V>(to + (4 * i + k) * of_number).value = row[k];
        }
      }
    }
  }
}

template <typename T>
FEDHPC_WIDE void see_wide(const TilesOfRow<T>& tiles, T* d) {
  see_tiles<T, WideVectors>(tiles, d);
}

}  // namespace fedhpc
