#include "fedhpc/math/similarity_graph.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "fedhpc/core/rng.hpp"

namespace fedhpc {

namespace {

using Edge = SimilarityGraph::Edge;
using Edges = std::vector<Edge>;
using Numbers = std::vector<std::int64_t>;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor matrix(const std::vector<std::vector<double>>& rows) {
  const auto nodes = static_cast<std::int64_t>(rows.size());
  Tensor distances = at::empty({nodes, nodes}, at::kDouble);
  double* value = distances.data_ptr<double>();
  for (const std::vector<double>& row : rows) value = std::copy(row.begin(), row.end(), value);
  return distances;
}

/// Distances between points of a line.
Tensor on_a_line(const std::vector<double>& points) {
  std::vector<std::vector<double>> rows;
  for (const double a : points) {
    rows.emplace_back();
    for (const double b : points) rows.back().push_back(std::abs(a - b));
  }
  return matrix(rows);
}

/// Distances of which each is met several times, so that there are many ties.
std::vector<std::vector<double>> with_ties(Draws& draws, std::size_t nodes) {
  std::vector<std::vector<double>> rows(nodes, std::vector<double>(nodes, 0));
  for (std::size_t i = 0; i < nodes; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      rows[i][j] = rows[j][i] = static_cast<double>(draws.below(5));
    }
  }
  return rows;
}

/// j is one of the k nearest of i: fewer than k others are nearer or as near with a lower index.
bool chooses(const std::vector<std::vector<double>>& d, std::size_t i, std::size_t j,
             std::int64_t k) {
  std::int64_t nearer = 0;
  for (std::size_t other = 0; other < d.size(); ++other) {
    if (other == i || other == j) continue;
    nearer += d[i][other] < d[i][j] || (d[i][other] == d[i][j] && other < j);
  }
  return nearer < k;
}

TEST(KnnGraph, JoinsWhomEitherSideChooses) {
  Draws draws({.seed = 11, .purpose = Purpose::Init});
  for (const std::size_t nodes : {2, 3, 7, 12}) {
    const auto rows = with_ties(draws, nodes);
    for (std::int64_t k = 0; k < 14; ++k) {
      Edges expected;
      for (std::size_t i = 0; i < nodes; ++i) {
        for (std::size_t j = i + 1; j < nodes; ++j) {
          if (chooses(rows, i, j, k) || chooses(rows, j, i, k)) expected.emplace_back(i, j);
        }
      }
      const SimilarityGraph graph = knn_graph(matrix(rows), k);
      EXPECT_EQ(graph.nodes, nodes);
      EXPECT_EQ(graph.edges, expected) << nodes << " nodes, k = " << k;
      EXPECT_EQ(graph.weights, std::vector<double>(expected.size(), 1));
    }
  }
}

TEST(KnnGraph, TiesGoToTheLowerIndex) {
  // Nodes 1 and 2 lie in the middle of two others.
  EXPECT_EQ(knn_graph(on_a_line({0, 1, 2, 3, 10}), 1).edges,
            (Edges{{0, 1}, {1, 2}, {2, 3}, {3, 4}}));
  EXPECT_EQ(knn_graph(on_a_line({5, 5, 5, 5}), 1).edges, (Edges{{0, 1}, {0, 2}, {0, 3}}));
}

TEST(KnnGraph, IsADirectedChoiceMadeUndirected) {
  // Not symmetric: 1 and 2 choose 0, which chooses 2.
  const Tensor distances = matrix({{0, 9, 1}, {2, 0, 7}, {3, 8, 0}});
  EXPECT_EQ(knn_graph(distances, 1).edges, (Edges{{0, 1}, {0, 2}}));
}

TEST(KnnGraph, OfFewNodesOrManyNeighbours) {
  for (const std::int64_t k : {0, 1, 5}) {
    EXPECT_TRUE(knn_graph(at::empty({0, 0}, at::kDouble), k).edges.empty());
    EXPECT_TRUE(knn_graph(matrix({{0}}), k).edges.empty());
    EXPECT_EQ(knn_graph(matrix({{0}}), k).nodes, 1);
  }
  const Edges complete = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}};
  for (const std::int64_t k : {3, 4, 1000}) {
    EXPECT_EQ(knn_graph(on_a_line({3, 1, 4, 1.5}), k).edges, complete);
  }
  EXPECT_TRUE(knn_graph(on_a_line({3, 1, 4, 1.5}), 0).edges.empty());
}

TEST(KnnGraph, ANodeWithoutDistancesStaysAlone) {
  for (const double missing : {kNaN, kInfinity}) {
    auto rows = std::vector<std::vector<double>>{
        {0, missing, 1, 2}, {missing, 0, missing, missing}, {1, missing, 0, 4}, {2, missing, 4, 0}};
    rows[1][1] = missing;
    EXPECT_EQ(knn_graph(matrix(rows), 1).edges, (Edges{{0, 2}, {0, 3}}));
    EXPECT_EQ(knn_graph(matrix(rows), 9).edges, (Edges{{0, 2}, {0, 3}, {2, 3}}));
  }
}

TEST(KnnGraph, ReadsAnyStridesAndRefusesWhatIsNoMatrix) {
  Draws draws({.seed = 12, .purpose = Purpose::Init});
  const Tensor distances = matrix(with_ties(draws, 9));
  Tensor wide = at::empty({9, 20}, at::kDouble);
  wide.fill_(kNaN);
  wide.narrow(1, 3, 9).copy_(distances);
  EXPECT_EQ(knn_graph(wide.narrow(1, 3, 9), 2).edges, knn_graph(distances, 2).edges);
  EXPECT_THROW(knn_graph(wide, 2), std::logic_error);
  EXPECT_THROW(knn_graph(distances.to(at::kFloat), 2), std::logic_error);
  EXPECT_THROW(knn_graph(distances, -1), std::logic_error);
}

TEST(GaussianWeights, FollowTheMedianDistance) {
  const Tensor distances = on_a_line({0, 1, 3, 7});  // 1, 2, 4 along the line
  const Edges edges = {{0, 1}, {1, 2}, {2, 3}};
  const std::vector<double> weights = gaussian_weights(distances, edges);
  ASSERT_EQ(weights.size(), 3U);
  EXPECT_DOUBLE_EQ(weights[0], std::exp(-0.125));
  EXPECT_DOUBLE_EQ(weights[1], std::exp(-0.5));
  EXPECT_DOUBLE_EQ(weights[2], std::exp(-2.0));

  const Edges two = {{0, 1}, {0, 2}};  // of an even number the middle: 2
  EXPECT_DOUBLE_EQ(gaussian_weights(distances, two)[1], std::exp(-9.0 / 8));
  EXPECT_TRUE(gaussian_weights(distances, Edges{}).empty());
}

TEST(GaussianWeights, OfEqualNodesAreOne) {
  const Edges edges = {{0, 1}, {0, 2}, {1, 2}};
  EXPECT_EQ(gaussian_weights(on_a_line({4, 4, 4}), edges), (std::vector<double>{1, 1, 1}));
  // Three of five distances are 0; the median of the others, 2 and 4, is 3.
  const Edges more = {{0, 1}, {0, 2}, {1, 2}, {2, 3}, {3, 4}};
  const std::vector<double> weights = gaussian_weights(on_a_line({4, 4, 4, 6, 10}), more);
  EXPECT_EQ(std::vector<double>(weights.begin(), weights.begin() + 3),
            (std::vector<double>{1, 1, 1}));
  EXPECT_DOUBLE_EQ(weights[3], std::exp(-2.0 / 9));
  EXPECT_DOUBLE_EQ(weights[4], std::exp(-8.0 / 9));
}

TEST(GaussianWeights, RefuseEdgesThatAreNone) {
  const Tensor distances = matrix({{0, 1, kNaN}, {1, 0, 2}, {kNaN, 2, 0}});
  for (const Edge& edge : {Edge{0, 2}, Edge{1, 0}, Edge{1, 1}, Edge{-1, 0}, Edge{1, 3}}) {
    EXPECT_THROW(gaussian_weights(distances, Edges{edge}), std::logic_error);
  }
}

TEST(KnnGraph, OfPlantedClustersJoinsOnlyTheirMembers) {
  Draws draws({.seed = 14, .purpose = Purpose::Init});
  std::vector<double> points;
  Numbers groups;
  for (std::int64_t i = 0; i < 24; ++i) {
    groups.push_back(i % 4);
    points.push_back(100.0 * static_cast<double>(i % 4) + draws.uniform());
  }
  const Tensor distances = on_a_line(points);
  const SimilarityGraph inside = knn_graph(distances, 5);
  const auto is_inside = [&](const Edge& edge) {
    return groups[edge.first] == groups[edge.second];
  };
  EXPECT_EQ(inside.edges.size(), 4U * 15) << "each cluster is complete";
  EXPECT_TRUE(std::ranges::all_of(inside.edges, is_inside));
  EXPECT_FALSE(std::ranges::all_of(knn_graph(distances, 6).edges, is_inside))
      << "a cluster has five others to offer";
}

}  // namespace

}  // namespace fedhpc
