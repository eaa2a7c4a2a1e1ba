#pragma once

#include <cstdint>
#include <vector>

#include "fedhpc/math/similarity_graph.hpp"

#include "math/tile_row.hpp"

namespace fedhpc {

/// Solves (I + c L) X = B with the graph Laplacian L = Q Q^T of N nodes, c >= 0, for tiles
/// [N, kTileColumns]. It takes a sparse Cholesky factor where its fill is small, else conjugate
/// gradients with Jacobi preconditioning. A column's solution does not depend on other tiles.
class LaplacianSolver {
 public:
  LaplacianSolver(const SimilarityGraph& graph, double c);

  bool is_direct() const { return !factor_.starts.empty(); }

  /// Moves X to the solution, or nearer to it. Its residual R = B - (I + c L) X on entry is lost.
  /// Conjugate gradients stop once every column's residual is shorter by `reduction` than it was,
  /// or as short as rounding lets it become. Returns their iterations, 0 for a direct solution. T
  /// is float or double.
  template <typename T>
  std::int64_t improve_(T* x, T* r, double reduction);

 private:
  /// P (I + c L) P^T = F F^T, F by columns below the diagonal.
  struct Factor {
    std::vector<std::int64_t> order;   // [N], node at each place
    std::vector<double> diagonal;      // [N], inverted
    std::vector<std::int64_t> starts;  // [N + 1]
    std::vector<std::int64_t> rows;
    std::vector<double> values;
  };

  void factorise(const SimilarityGraph& graph);
  template <typename T>
  void solve_directly_(T* x, const T* r);
  template <typename T>
  std::int64_t iterate_(T* x, T* r, double reduction);
  /// Computes row i of (I + c L) p.
  template <typename T>
  TileRow<T> image_of(const T* p, std::int64_t i) const;
  /// Returns the inverse of the matrix's diagonal at node i.
  template <typename T>
  T preconditioner(std::int64_t i) const;
  template <typename T>
  TileRows<T>& space();

  std::int64_t nodes_;
  double c_;
  std::vector<std::int64_t> starts_;      // [N + 1] of each node's neighbours
  std::vector<std::int32_t> neighbours_;  // [2 E]
  Factor factor_;
  TileRows<float> floats_;    // room to work in
  TileRows<double> doubles_;  // the same
};

}  // namespace fedhpc
