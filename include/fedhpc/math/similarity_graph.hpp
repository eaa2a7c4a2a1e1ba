#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

/// Joins those of N nodes (clients) that are alike: an undirected graph without loops.
struct SimilarityGraph {
  /// Two different nodes, the smaller one first.
  using Edge = std::pair<std::int64_t, std::int64_t>;

  std::int64_t nodes = 0;            ///< N
  std::vector<Edge> edges = {};      ///< [E] ascending, each once
  std::vector<double> weights = {};  ///< [E], 1 unless set
};

/// Builds the nearest neighbours' graph. Nodes i and j are joined when one of them is among the k
/// nearest to the other, so that a node has k neighbours or more. Of equally near nodes the lower
/// index is the nearer one; a node is no neighbour of its own. k >= N - 1 gives the complete graph,
/// k = 0 (or N < 2) one without edges; k is not negative.
///
/// `distances` [N, N] float64: row i holds the distances from i; its diagonal is not read, and only
/// the order of a row matters (squares do as well). A distance that is not finite joins nobody,
/// whatever k is: a client without data, all of whose distances are NaN, is nobody's neighbour and
/// has none. Costs O(N^2 log k).
SimilarityGraph knn_graph(const Tensor& distances, std::int64_t k);

/// Returns exp(-d_ij^2 / (2 s^2)) for each edge: in (0, 1], e^-1/2 at the median. s is the median
/// of d over the edges (of an even number the mean of the two in the middle). Where the median is 0
/// the distances of 0 are left out of it; if all are 0, all weights are 1. `distances` [N, N]
/// float64, not squared, are read at (i, j) with i < j and finite there.
std::vector<double> gaussian_weights(const Tensor& distances,
                                     std::span<const SimilarityGraph::Edge> edges);

}  // namespace fedhpc
