#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

#include "fedhpc/math/similarity_graph.hpp"

#include "math/network_solver.hpp"
#include "math/tile_row.hpp"

// One step of the network lasso's ADMM on a tile, some columns of Z and A. Included where sums over
// columns may be taken in any one order (compile options of network_lasso.cpp).

namespace fedhpc {

/// The squares that make up the residuals, in float64.
struct Squares {
  std::array<double, Square::Terms> of{};
};

/// Returns W of A, coordinate by coordinate, by one number of the edge. It is the threshold
/// (p = 1), the share that stays (p = 2) or the level entries are clipped to (p = infinity).
template <VectorNorm norm, typename T>
TileRow<T> shrunk(const TileRow<T>& a, T number) {
  if constexpr (norm == VectorNorm::One) return a - clipped(a, number);
  if constexpr (norm == VectorNorm::Two) return number * a;
  if constexpr (norm == VectorNorm::Infinity) return clipped(a, number);
}

/// Holds Z, V [N, w] and A [E, w] of this rank's columns in tiles of kTileColumns. W and Omega
/// follow from A and one number of each edge.
template <typename T>
class NetworkTiles {
 public:
  using Row = TileRow<T>;

  explicit NetworkTiles(const SimilarityGraph& graph)
      : nodes_(graph.nodes),
        edges_(static_cast<std::int64_t>(graph.edges.size())),
        first_edges_(static_cast<std::size_t>(graph.nodes) + 1) {
    for (const auto& [i, j] : graph.edges) {
      ++first_edges_[static_cast<std::size_t>(i) + 1];
      other_ends_.push_back(static_cast<std::int32_t>(j));
    }
    other_ends_.resize(other_ends_.size() + kAhead, 0);
    std::partial_sum(first_edges_.begin(), first_edges_.end(), first_edges_.begin());
  }

  /// Takes Z and V; A = 0.
  void take_(const Tensor& z, const Tensor& v) {
    count_ = (z.size(1) + kWidth - 1) / kWidth;
    z_.resize(static_cast<std::size_t>(count_ * nodes_ * kWidth));
    v_.resize(z_.size());
    a_.assign(static_cast<std::size_t>(count_ * edges_ * kWidth), T(0));
    residuals_of_tile_.resize(static_cast<std::size_t>(nodes_ * kWidth));
    to_tiles(z, z_);
    to_tiles(v, v_);
  }
  void give(const Tensor& z) const { from_tiles_(z, z_); }

  std::int64_t count() const { return count_; }
  /// [N, kTileColumns] of a tile.
  T* z_of(std::int64_t tile) { return z_.data() + tile * nodes_ * kWidth; }
  T* residuals() { return residuals_of_tile_.data(); }

  /// residuals() = V + eta (Omega + rho W) Q^T - Z (I + eta rho Q Q^T), with Omega = rho (W - A):
  /// what Z lacks as the solution of the step's linear system.
  template <VectorNorm norm>
  void residuals_(std::int64_t tile, const std::vector<T>& numbers, T eta_rho) {
    std::fill(residuals_of_tile_.begin(), residuals_of_tile_.end(), T(0));
    const T* z = z_of(tile);
    const T* v = v_.data() + tile * nodes_ * kWidth;
    const T* a = a_of(tile);
    T* r = residuals_of_tile_.data();
    for (std::int64_t i = 0; i < nodes_; ++i) {
      const Row own = Row::load(z + i * kWidth);
      Row sum = Row::load(r + i * kWidth);  // edges (., i) are there already
      for (std::int64_t m = first_edge(i); m < first_edge(i + 1); ++m) {
        const Row of_edge = Row::load(a + m * kWidth);
        const std::int64_t j = other_end(m);
        __builtin_prefetch(z + other_end(m + kAhead));
        __builtin_prefetch(r + other_end(m + kAhead));
        const Row zq = own - Row::load(z + j);
        const Row x =
            T(2) * shrunk<norm>(of_edge, numbers[static_cast<std::size_t>(m)]) - of_edge - zq;
        sum += x;
        (Row::load(r + j) - x).store(r + j);
      }
      (Row::load(v + i * kWidth) - own + eta_rho * sum).store(r + i * kWidth);
    }
  }

  /// A <- Z Q - Omega / rho. On the way it adds to `sums` what the edges' next numbers follow from.
  /// That is nothing (p = 1), the square [E] (p = 2), or add_excess()'s two [E, 2] at `levels`
  /// (p = infinity).
  template <VectorNorm norm>
  void differences_(std::int64_t tile, const std::vector<T>& numbers,
                    const std::vector<double>& levels, double* sums) {
    const T* z = z_of(tile);
    T* a = a_of(tile);
    for (std::int64_t i = 0; i < nodes_; ++i) {
      const Row own = Row::load(z + i * kWidth);
      for (std::int64_t m = first_edge(i); m < first_edge(i + 1); ++m) {
        __builtin_prefetch(z + other_end(m + kAhead));
        const Row before = Row::load(a + m * kWidth);
        const Row zq = own - Row::load(z + other_end(m));
        const Row now = zq + (before - shrunk<norm>(before, numbers[static_cast<std::size_t>(m)]));
        now.store(a + m * kWidth);
        if constexpr (norm == VectorNorm::Two) sums[m] += static_cast<double>(sum(now * now));
        if constexpr (norm == VectorNorm::Infinity) {
          add_excess(now, levels[static_cast<std::size_t>(m)], sums + 2 * m);
        }
      }
    }
  }

  /// Adds a tile's squares of the residuals, for W, Omega and Z as they are.
  template <VectorNorm norm>
  void measure_(std::int64_t tile, const std::vector<T>& numbers, double eta, double rho,
                Squares& squares) {
    std::fill(residuals_of_tile_.begin(), residuals_of_tile_.end(), T(0));
    const T* z = z_of(tile);
    const T* v = v_.data() + tile * nodes_ * kWidth;
    const T* a = a_of(tile);
    T* pull = residuals_of_tile_.data();  // (W - A) Q^T
    for (std::int64_t i = 0; i < nodes_; ++i) {
      const Row own = Row::load(z + i * kWidth);
      Row of_node = Row::load(pull + i * kWidth);
      for (std::int64_t m = first_edge(i); m < first_edge(i + 1); ++m) {
        const std::int64_t j = other_end(m);
        const Row of_edge = Row::load(a + m * kWidth);
        const Row w = shrunk<norm>(of_edge, numbers[static_cast<std::size_t>(m)]);
        const Row zq = own - Row::load(z + j);
        squares.of[Square::Primal] += static_cast<double>(sum((w - zq) * (w - zq)));
        squares.of[Square::W] += static_cast<double>(sum(w * w));
        squares.of[Square::Zq] += static_cast<double>(sum(zq * zq));
        of_node += w - of_edge;
        (Row::load(pull + j) - (w - of_edge)).store(pull + j);
      }
      const Row gradient = own - Row::load(v + i * kWidth);
      for (std::int64_t k = 0; k < kWidth; ++k) {
        const double g = static_cast<double>(gradient[k]) / eta;
        const double dual = rho * static_cast<double>(of_node[k]);
        squares.of[Square::Dual] += (g - dual) * (g - dual);
        squares.of[Square::Pull] += g * g;
        squares.of[Square::OmegaQ] += dual * dual;
      }
    }
  }

  /// Adds for each edge that is not `done` the sum of (|a| - level)_+ and the number of |a| above.
  void add_excess(std::int64_t tile, const std::vector<double>& levels,
                  const std::vector<char>& done, double* sums) const {
    const T* a = a_.data() + tile * edges_ * kWidth;
    for (std::size_t m = 0; m < done.size(); ++m, a += kWidth, sums += 2) {
      if (done[m] == 0) add_excess(Row::load(a), levels[m], sums);
    }
  }

 private:
  static constexpr std::int64_t kWidth = kTileColumns;
  // Edges whose larger ends are on their way to the nearest cache.
  static constexpr std::int64_t kAhead = 20;

  /// [N, w] row by row <-> tiles [N, kWidth] one after the other, the last filled up with zeros.
  static void to_tiles(const Tensor& rows, TileRows<T>& tiles) {
    const std::int64_t nodes = rows.size(0);
    std::fill(tiles.begin(), tiles.end(), T(0));
    for (std::int64_t i = 0; i < nodes; ++i) {
      const T* row = rows.const_data_ptr<T>() + i * rows.stride(0);
      for (std::int64_t c = 0; c < rows.size(1); c += kWidth) {
        std::copy_n(row + c, std::min(kWidth, rows.size(1) - c),
                    tiles.data() + c * nodes + i * kWidth);
      }
    }
  }

  static void from_tiles_(const Tensor& rows, const TileRows<T>& tiles) {
    const std::int64_t nodes = rows.size(0);
    for (std::int64_t i = 0; i < nodes; ++i) {
      T* row = rows.data_ptr<T>() + i * rows.stride(0);
      for (std::int64_t c = 0; c < rows.size(1); c += kWidth) {
        std::copy_n(tiles.data() + c * nodes + i * kWidth, std::min(kWidth, rows.size(1) - c),
                    row + c);
      }
    }
  }

  /// Adds the sum of (|a| - level)_+ and the number of |a| above it.
  static void add_excess(const Row& a, double level, double* sums) {
    const Row beyond = magnitude(a) - Row(static_cast<T>(level));
    const Row above = above_zero(beyond);
    sums[0] += static_cast<double>(sum(above * beyond));
    sums[1] += static_cast<double>(sum(above));
  }

  T* a_of(std::int64_t tile) { return a_.data() + tile * edges_ * kWidth; }
  /// The edges of node i as their smaller end: first_edge(i) up to first_edge(i + 1).
  std::int64_t first_edge(std::int64_t i) const {
    return first_edges_[static_cast<std::size_t>(i)];
  }
  /// Returns the place in a tile at which the row of edge m's larger end begins.
  std::int64_t other_end(std::int64_t m) const {
    return other_ends_[static_cast<std::size_t>(m)] * kWidth;
  }

  std::int64_t nodes_;
  std::int64_t edges_;
  std::int64_t count_ = 0;                 // of tiles
  std::vector<std::int64_t> first_edges_;  // [N + 1]
  std::vector<std::int32_t> other_ends_;   // [E], and kAhead zeros
  TileRows<T> z_;                          // [tiles, N, kWidth]
  TileRows<T> v_;                          // [tiles, N, kWidth]
  TileRows<T> a_;                          // [tiles, E, kWidth]
  TileRows<T> residuals_of_tile_;          // [N, kWidth]
};

}  // namespace fedhpc
