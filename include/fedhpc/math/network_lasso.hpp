#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "fedhpc/comm/communicator.hpp"
#include "fedhpc/math/p_norm.hpp"
#include "fedhpc/math/similarity_graph.hpp"

namespace fedhpc {

struct NetworkLassoOptions {
  VectorNorm norm = VectorNorm::Two;  ///< p
  double lambda = 0;                  ///< weight of the coupling; 0: nodes do not meet
  std::optional<double> rho = {};     ///< ADMM's penalty; none: 1 / (eta (1 + mean degree))
  std::int64_t steps = 10;            ///< K, at most
  /// Ends one step after both residuals are at most that, as a step measures the one before; 0: all
  /// steps.
  double tolerance = 0;
};

/// The residuals of an iterate in the solution's equations, relative to the numbers compared.
struct NetworkLassoReport {
  std::int64_t steps = 0;
  double primal = 0;  ///< ||W - Z Q|| / max(||W||, ||Z Q||), Frobenius norms
  /// ||(Z - V) / eta - Omega Q^T|| / max(||(Z - V) / eta||, ||Omega Q^T||)
  double dual = 0;
};

/// Nodes that are pulled towards their neighbours (network lasso): for V [N, d_2], eta > 0 and the
/// graph's edges m = (i, j) of weights a_m
///
///   minimise over Z   1/(2 eta) ||Z - V||_F^2 + lambda sum_m a_m ||z_i - z_j||_p
///
/// which with V = Z_t - eta N^T G / N is the Z update of the similarity-network method (Algorithm
/// 4, corrected), by the alternating direction method of multipliers:
///
///   Z      <- [V + eta (Omega + rho W) Q^T] (I + eta rho Q Q^T)^-1
///   A      <- Z Q - Omega / rho
///   W_m    <- prox of (lambda a_m / rho) ||.||_p at A_m
///   Omega  <- Omega + rho (W - Z Q) = rho (W - A)
///
/// Q [N, E] has +1 at i and -1 at j; rows here are the nodes, columns of the paper's Z. W and Omega
/// both follow from A and one number of each edge, so that A [E, d_2] is all that is kept.
///
/// Ranks have some columns of all nodes each. In a step they exchange numbers of edges: a sum for p
/// = 2, nothing for p = 1. For p = infinity they exchange one in every Newton step on the
/// threshold. Sums are order_free_sum: the same bits on any number of ranks whose columns start at
/// multiples of kStripe.
///
/// Columns on a device are solved there, by kernels and a product with the linear systems' inverse.
/// For p = 1 the host then waits for none of a fixed number of steps. Graphs of more than 1,024 nodes
/// have no such inverse, and 2^26 columns of a rank are too many for the product: these are solved in
/// host memory.
class NetworkLasso {
 public:
  /// Columns of one rank that are summed in order.
  static constexpr std::int64_t kStripe = 64;

  NetworkLasso(SimilarityGraph graph, const NetworkLassoOptions& options);
  ~NetworkLasso();

  const SimilarityGraph& graph() const { return graph_; }

  /// Turns Z [N, w] into the solution for `target` V [N, w] of the same type, float32 or float64. Z
  /// holds this rank's columns of the start (W = Z Q, Omega = 0). Without edges or coupling Z = V.
  /// Both lie in host memory or on a device. Collective; a rank may have no columns.
  NetworkLassoReport solve_(Communicator& comm, const Tensor& z, const Tensor& target, double eta);

 private:
  class Solver;
  template <typename Columns>
  class SolverOf;

  template <typename T>
  std::unique_ptr<Solver> solver_on_device(double eta) const;

  SimilarityGraph graph_;
  NetworkLassoOptions options_;
  std::unique_ptr<Solver> solver_;
};

}  // namespace fedhpc
