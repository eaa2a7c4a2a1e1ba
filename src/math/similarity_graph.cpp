#include "fedhpc/math/similarity_graph.hpp"

#include <algorithm>
#include <cmath>

#include "fedhpc/core/percentile.hpp"

namespace fedhpc {

namespace {

using Edge = SimilarityGraph::Edge;

/// A matrix of distances, row by row.
class Distances {
 public:
  explicit Distances(const Tensor& distances) : values_(distances.contiguous()) {
    require(distances.dim() == 2 && distances.size(0) == distances.size(1) &&
                distances.scalar_type() == at::kDouble,
            "distances are a square matrix of float64");
  }

  std::int64_t nodes() const { return values_.size(0); }
  double at(std::int64_t i, std::int64_t j) const {
    return values_.const_data_ptr<double>()[i * nodes() + j];
  }

 private:
  Tensor values_;  // [N, N]
};

std::vector<std::int64_t> nearest(const Distances& distances, std::int64_t i, std::int64_t k) {
  std::vector<std::int64_t> others;
  for (std::int64_t j = 0; j < distances.nodes(); ++j) {
    if (j != i && std::isfinite(distances.at(i, j))) others.push_back(j);
  }
  const auto kept = std::min(k, static_cast<std::int64_t>(others.size()));
  std::partial_sort(others.begin(), others.begin() + kept, others.end(),
                    [&](std::int64_t a, std::int64_t b) {
                      const double to_a = distances.at(i, a);
                      const double to_b = distances.at(i, b);
                      return to_a != to_b ? to_a < to_b : a < b;
                    });
  others.resize(static_cast<std::size_t>(kept));
  return others;
}

}  // namespace

SimilarityGraph knn_graph(const Tensor& distances, std::int64_t k) {
  require(k >= 0, "a node has no negative number of neighbours");
  const Distances matrix(distances);
  SimilarityGraph graph;
  graph.nodes = matrix.nodes();
  for (std::int64_t i = 0; i < graph.nodes; ++i) {
    for (const std::int64_t j : nearest(matrix, i, k)) {
      graph.edges.emplace_back(std::min(i, j), std::max(i, j));
    }
  }
  // Two nodes that chose each other have met twice.
  std::sort(graph.edges.begin(), graph.edges.end());
  graph.edges.erase(std::unique(graph.edges.begin(), graph.edges.end()), graph.edges.end());
  graph.weights.assign(graph.edges.size(), 1);
  return graph;
}

std::vector<double> gaussian_weights(const Tensor& distances, std::span<const Edge> edges) {
  const Distances matrix(distances);
  std::vector<double> weights;
  for (const auto& [i, j] : edges) {
    require(0 <= i && i < j && j < matrix.nodes(), "an edge joins two nodes, the smaller first");
    weights.push_back(matrix.at(i, j));
    require(std::isfinite(weights.back()), "the nodes of an edge have a finite distance");
  }
  double median = percentile(weights, 0.5);
  if (median == 0) {
    std::vector<double> apart;
    std::copy_if(weights.begin(), weights.end(), std::back_inserter(apart),
                 [](double distance) { return distance > 0; });
    median = apart.empty() ? 1 : percentile(apart, 0.5);
  }
  for (double& weight : weights) {
    const double ratio = weight / median;
    weight = std::exp(-ratio * ratio / 2);
  }
  return weights;
}

}  // namespace fedhpc
