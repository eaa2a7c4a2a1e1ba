#include "fedhpc/math/network_lasso.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "fedhpc/math/order_free_sum.hpp"

#include "math/laplacian_solver.hpp"
#include "math/network_solver.hpp"
#include "reference/simnet_reference.hpp"

namespace fedhpc {
namespace {

double norm_of(const Tensor& a, VectorNorm norm) {
  const double p = norm == VectorNorm::One   ? 1
                   : norm == VectorNorm::Two ? 2
                                             : std::numeric_limits<double>::infinity();
  return a.norm(p).item<double>();
}

Tensor prox(const Tensor& a, VectorNorm norm, double tau) {
  using reference::Distance;
  return reference::shrunk(a,
                           norm == VectorNorm::One   ? Distance::Manhattan
                           : norm == VectorNorm::Two ? Distance::Euclidean
                                                     : Distance::Chebyshev,
                           tau);
}

/// A ring with a few chords: connected, of uneven degrees.
SimilarityGraph ring(std::int64_t nodes, std::int64_t chord = 0) {
  SimilarityGraph graph{.nodes = nodes};
  for (std::int64_t i = 0; i + 1 < nodes; ++i) graph.edges.emplace_back(i, i + 1);
  if (nodes > 2) graph.edges.emplace_back(0, nodes - 1);
  if (chord > 0) {
    for (std::int64_t i = 0; i + chord < nodes; i += 3) graph.edges.emplace_back(i, i + chord);
  }
  std::sort(graph.edges.begin(), graph.edges.end());
  graph.weights.assign(graph.edges.size(), 1);
  return graph;
}

/// Q [N, E].
Tensor incidence(const SimilarityGraph& graph) {
  Tensor q = at::zeros({graph.nodes, static_cast<std::int64_t>(graph.edges.size())}, at::kDouble);
  for (std::size_t m = 0; m < graph.edges.size(); ++m) {
    q[graph.edges[m].first][static_cast<std::int64_t>(m)].fill_(1);
    q[graph.edges[m].second][static_cast<std::int64_t>(m)].fill_(-1);
  }
  return q;
}

/// The point nearest to each row of `y` [E, d] whose dual norm is at most its radius.
Tensor into_dual_balls(const Tensor& y, VectorNorm norm, const std::vector<double>& radii) {
  Tensor inside = y.clone();
  for (std::int64_t m = 0; m < y.size(0); ++m) {
    const double radius = radii[static_cast<std::size_t>(m)];
    Tensor row = inside[m];
    if (norm == VectorNorm::One) {
      row.clamp_(-radius, radius);
    } else if (norm == VectorNorm::Two) {
      const double length = row.norm().item<double>();
      if (length > radius) row.mul_(radius / length);
    } else if (row.abs().sum().item<double>() > radius) {  // the l1 ball, by sorting
      const Tensor sorted = std::get<0>(row.abs().sort(0, /*descending=*/true));
      double sum = 0;
      double level = 0;
      for (std::int64_t k = 0; k < sorted.numel(); ++k) {
        sum += sorted[k].item<double>();
        const double candidate = (sum - radius) / static_cast<double>(k + 1);
        if (candidate < sorted[k].item<double>()) level = candidate;
      }
      row.copy_(row.sign() * (row.abs() - level).clamp_min(0));
    }
  }
  return inside;
}

/// Accelerated projected gradient on the dual: Z = V - eta Q Y, Y_m in the ball of radius lambda
/// a_m of the dual norm. Restarted where it would turn back.
Tensor by_duality(const SimilarityGraph& graph, VectorNorm norm, double lambda, const Tensor& v,
                  double eta) {
  const Tensor q = incidence(graph);  // [N, E]
  std::vector<double> radii;
  for (const double weight : graph.weights) radii.push_back(lambda * weight);
  double degree = 1;
  for (std::int64_t i = 0; i < graph.nodes; ++i) {
    degree = std::max(degree, q[i].abs().sum().item<double>());
  }
  const double step = 1 / (eta * 2 * degree);
  Tensor y = at::zeros({q.size(1), v.size(1)}, at::kDouble);
  Tensor point = y;
  double t = 1;
  for (int k = 0; k < 60000; ++k) {
    const Tensor z = v - eta * q.matmul(point);
    const Tensor next = into_dual_balls(point + step * q.t().matmul(z), norm, radii);
    if (((point - next) * (next - y)).sum().item<double>() > 0) t = 1;
    const double t_next = (1 + std::sqrt(1 + 4 * t * t)) / 2;
    const double moved = (next - y).abs().max().item<double>();
    point = next + ((t - 1) / t_next) * (next - y);
    y = next;
    t = t_next;
    if (moved < 1e-14) break;
  }
  return v - eta * q.matmul(y);
}

double objective(const SimilarityGraph& graph, VectorNorm norm, double lambda, const Tensor& v,
                 double eta, const Tensor& z) {
  double sum = (z - v).square().sum().item<double>() / (2 * eta);
  for (std::size_t m = 0; m < graph.edges.size(); ++m) {
    const auto& [i, j] = graph.edges[m];
    sum += lambda * graph.weights[m] * norm_of(z[i] - z[j], norm);
  }
  return sum;
}

class NetworkLassoOf : public ::testing::TestWithParam<VectorNorm> {
 protected:
  std::unique_ptr<Communicator> comm_ = local_communicator();
};

TEST_P(NetworkLassoOf, EqualsTheDualSolver) {
  at::manual_seed(4);
  SimilarityGraph graph = ring(9, 4);
  graph.weights[2] = 0.3;
  graph.weights[5] = 2;
  for (const std::int64_t columns : {1, 5, 70}) {
    const Tensor v = at::randn({9, columns}, at::kDouble);
    for (const double lambda : {0.02, 0.3, 2.0}) {
      const double eta = 0.7;
      const Tensor expected = by_duality(graph, GetParam(), lambda, v, eta);
      NetworkLasso lasso(
          graph, {.norm = GetParam(), .lambda = lambda, .steps = 20000, .tolerance = 1e-13});
      const Tensor z = at::zeros_like(v);
      const NetworkLassoReport report = lasso.solve_(*comm_, z, v, eta);
      EXPECT_LT((z - expected).abs().max().item<double>(), 1e-10)
          << columns << " columns, lambda " << lambda << ", " << report.steps << " steps";
      EXPECT_LE(report.primal, 1e-12);
      EXPECT_LE(report.dual, 1e-12);
      EXPECT_LT(report.steps, 20000);
      EXPECT_LE(objective(graph, GetParam(), lambda, v, eta, z),
                objective(graph, GetParam(), lambda, v, eta, expected) + 1e-9);
    }
  }
}

TEST_P(NetworkLassoOf, EveryPenaltyLeadsToTheSameEnd) {
  at::manual_seed(5);
  const SimilarityGraph graph = ring(7);
  const Tensor v = at::randn({7, 20}, at::kDouble);
  Tensor first;
  for (const double rho : {0.05, 0.5, 5.0}) {
    NetworkLasso lasso(
        graph,
        {.norm = GetParam(), .lambda = 0.4, .rho = rho, .steps = 100000, .tolerance = 1e-13});
    const Tensor z = v.clone();
    lasso.solve_(*comm_, z, v, 1.3);
    if (!first.defined()) first = z;
    EXPECT_LT((z - first).abs().max().item<double>(), 1e-10) << rho;
  }
}

TEST_P(NetworkLassoOf, IteratedSystemsLeadToTheSameEnd) {
  // So many nodes without near and far have no sparse factor.
  at::manual_seed(9);
  SimilarityGraph graph = ring(1500);
  for (std::int64_t i = 0; i < 1500; ++i) {
    for (const std::int64_t j : {(i * 37 + 11) % 1500, (i * 91 + 5) % 1500}) {
      if (i != j) graph.edges.emplace_back(std::min(i, j), std::max(i, j));
    }
  }
  std::sort(graph.edges.begin(), graph.edges.end());
  graph.weights.assign(graph.edges.size(), 1);
  ASSERT_FALSE(LaplacianSolver(graph, 0.2).is_direct());
  const Tensor v = at::randn({1500, 3}, at::kDouble);
  Tensor first;
  for (const double rho : {0.2, 0.6}) {
    NetworkLasso lasso(
        graph, {.norm = GetParam(), .lambda = 0.1, .rho = rho, .steps = 20000, .tolerance = 1e-12});
    const Tensor z = at::zeros_like(v);
    const NetworkLassoReport report = lasso.solve_(*comm_, z, v, 1);
    EXPECT_LE(std::max(report.primal, report.dual), 1e-11);
    if (!first.defined()) first = z;
    EXPECT_LT((z - first).abs().max().item<double>(), 1e-9) << rho;
  }
}

TEST_P(NetworkLassoOf, WithoutCouplingNodesAreAlone) {
  const Tensor v = at::randn({6, 10}, at::kDouble);
  const Tensor z = at::zeros_like(v);
  NetworkLasso(ring(6), {.norm = GetParam(), .lambda = 0}).solve_(*comm_, z, v, 0.1);
  EXPECT_TRUE(z.equal(v));
  z.zero_();
  NetworkLasso({.nodes = 6}, {.norm = GetParam(), .lambda = 3}).solve_(*comm_, z, v, 0.1);
  EXPECT_TRUE(z.equal(v));
}

TEST_P(NetworkLassoOf, StrongCouplingMakesConnectedNodesEqual) {
  // Two components: the rows of each become its mean.
  SimilarityGraph graph{.nodes = 7, .edges = {{0, 1}, {1, 2}, {3, 4}, {4, 5}, {5, 6}}};
  graph.weights.assign(5, 1);
  const Tensor v = at::randn({7, 12}, at::kDouble);
  const Tensor z = at::zeros_like(v);
  NetworkLasso lasso(graph,
                     {.norm = GetParam(), .lambda = 100, .steps = 50000, .tolerance = 1e-13});
  lasso.solve_(*comm_, z, v, 1);
  for (const auto& [begin, end] : {std::pair{0, 3}, std::pair{3, 7}}) {
    const Tensor mean = v.slice(0, begin, end).mean(0);
    EXPECT_LT((z.slice(0, begin, end) - mean).abs().max().item<double>(), 1e-10);
  }
}

TEST_P(NetworkLassoOf, Float32FollowsFloat64) {
  at::manual_seed(6);
  const SimilarityGraph graph = ring(12, 5);
  const Tensor v = at::randn({12, 33}, at::kDouble);
  const NetworkLassoOptions options{.norm = GetParam(), .lambda = 0.2, .steps = 40};
  const Tensor wide = v.clone();
  NetworkLasso lasso(graph, options);
  lasso.solve_(*comm_, wide, v, 0.5);
  const Tensor narrow = v.to(at::kFloat);
  lasso.solve_(*comm_, narrow, v.to(at::kFloat), 0.5);
  EXPECT_LT((narrow.to(at::kDouble) - wide).abs().max().item<double>(), 1e-5);
}

TEST_P(NetworkLassoOf, ColumnsOfAWiderMatrix) {
  const SimilarityGraph graph = ring(8);
  const NetworkLassoOptions options{.norm = GetParam(), .lambda = 0.2, .steps = 30};
  const Tensor v = at::randn({8, 40}, at::kDouble);
  const Tensor wide = at::zeros({8, 100}, at::kDouble);
  const Tensor z = wide.narrow(1, 30, 40);
  z.copy_(v);
  const Tensor alone = v.clone();
  NetworkLasso lasso(graph, options);
  lasso.solve_(*comm_, alone, v, 0.5);
  lasso.solve_(*comm_, z, v, 0.5);
  EXPECT_TRUE(z.equal(alone));
  EXPECT_EQ(wide.narrow(1, 0, 30).count_nonzero().item<std::int64_t>(), 0);
  EXPECT_EQ(wide.narrow(1, 70, 30).count_nonzero().item<std::int64_t>(), 0);
}

TEST_P(NetworkLassoOf, WhatIsNotANumberEndsToo) {
  const Tensor v = at::randn({6, 10}, at::kDouble);
  v[2][3].fill_(std::nan(""));
  const Tensor z = v.clone();
  NetworkLasso lasso(ring(6), {.norm = GetParam(), .lambda = 0.5, .steps = 5});
  lasso.solve_(*comm_, z, v, 0.5);
  EXPECT_TRUE(std::isnan(z[2][3].item<double>()));
}

std::string name_of(const ::testing::TestParamInfo<VectorNorm>& info) {
  return std::vector<std::string>{"one", "two", "infinity"}[static_cast<std::size_t>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Norms, NetworkLassoOf,
                         ::testing::Values(VectorNorm::One, VectorNorm::Two, VectorNorm::Infinity),
                         name_of);

// Algorithm 4 of the draft shrinks with (1 - 1 / ||(rho/lambda) a||_q)_+ for every p, q the dual
// norm's index.
Tensor printed_prox(const Tensor& a, VectorNorm norm, double tau) {
  const VectorNorm dual = norm == VectorNorm::One   ? VectorNorm::Infinity
                          : norm == VectorNorm::Two ? VectorNorm::Two
                                                    : VectorNorm::One;
  return std::max(0.0, 1 - tau / norm_of(a, dual)) * a;
}

double prox_objective(const Tensor& w, const Tensor& a, VectorNorm norm, double tau) {
  return tau * norm_of(w, norm) + 0.5 * (w - a).square().sum().item<double>();
}

/// The least value on ever finer grids around the best point so far.
Tensor by_search(const Tensor& a, VectorNorm norm, double tau) {
  Tensor best = a.clone();
  double least = prox_objective(best, a, norm, tau);
  for (double width = 2; width > 1e-9; width *= 0.7) {
    for (int turn = 0; turn < 400; ++turn) {
      const Tensor other = best + width * at::randn(a.sizes(), a.options());
      const double value = prox_objective(other, a, norm, tau);
      if (value < least) {
        least = value;
        best = other;
      }
    }
  }
  return best;
}

TEST(ReferenceProx, IsTheLeastPointOfEveryNorm) {
  at::manual_seed(7);
  for (const VectorNorm norm : {VectorNorm::One, VectorNorm::Two, VectorNorm::Infinity}) {
    for (const double tau : {0.1, 0.8, 2.5}) {
      const Tensor a = at::randn({3}, at::kDouble);
      const Tensor w = prox(a, norm, tau);
      const Tensor searched = by_search(a, norm, tau);
      EXPECT_LE(prox_objective(w, a, norm, tau), prox_objective(searched, a, norm, tau) + 1e-12);
      EXPECT_LT((w - searched).abs().max().item<double>(), 1e-3);
    }
  }
}

TEST(ReferenceProx, ThePrintedFormulaIsRightForLengthsAlone) {
  const Tensor a = at::tensor({2.0, -0.5, 1.0, 0.25}, at::kDouble);
  for (const VectorNorm norm : {VectorNorm::One, VectorNorm::Two, VectorNorm::Infinity}) {
    const double best = prox_objective(prox(a, norm, 1), a, norm, 1);
    const double printed = prox_objective(printed_prox(a, norm, 1), a, norm, 1);
    if (norm == VectorNorm::Two) {
      EXPECT_NEAR(printed, best, 1e-14);
    } else {
      EXPECT_GT(printed, best + 0.05);
    }
  }
}

TEST(LaplacianSolver, SolvesByFactorAndByIteration) {
  // A ring has a small fill; of a graph without near and far the factor is full.
  for (const std::int64_t nodes : {30, 1500}) {
    SimilarityGraph graph = ring(nodes);
    if (nodes == 1500) {
      for (std::int64_t i = 0; i < nodes; ++i) {
        for (const std::int64_t j : {(i * 37 + 11) % nodes, (i * 91 + 5) % nodes}) {
          if (i != j) graph.edges.emplace_back(i, j);
        }
      }
    }
    const double c = 0.8;
    LaplacianSolver solver(graph, c);
    EXPECT_EQ(solver.is_direct(), nodes == 30);
    const Tensor q = incidence(graph);
    const Tensor matrix = at::eye(nodes, at::kDouble) + c * q.matmul(q.t());
    const Tensor b = at::randn({nodes, kTileColumns}, at::kDouble);
    const Tensor x = at::zeros_like(b);
    const auto improve = [&] {
      const Tensor residual = b - matrix.matmul(x);
      return solver.improve_(x.data_ptr<double>(), residual.data_ptr<double>(), 1e-15);
    };
    EXPECT_EQ(improve() == 0, solver.is_direct());
    EXPECT_LT((matrix.matmul(x) - b).abs().max().item<double>(), 1e-10);
    // Started where it ended, it has nothing to do.
    EXPECT_EQ(improve(), 0);
  }
}

TEST(OrderFreeSum, IsTheSameInAnyOrder) {
  at::manual_seed(8);
  const std::unique_ptr<Communicator> comm = local_communicator();
  const Tensor parts =
      at::randn({300, 7}, at::kDouble).square() * at::pow(10, at::randn({300, 7}, at::kDouble) * 6);
  const Tensor sums = order_free_sum(*comm, parts);
  for (int turn = 0; turn < 5; ++turn) {
    EXPECT_TRUE(
        order_free_sum(*comm, parts.index_select(0, at::randperm(300, at::kLong))).equal(sums));
  }
  EXPECT_LT(((sums - parts.sum(0)) / sums).abs().max().item<double>(), 1e-12);
  EXPECT_TRUE(
      order_free_sum(*comm, at::zeros({3, 2}, at::kDouble)).equal(at::zeros({2}, at::kDouble)));
  EXPECT_EQ(order_free_sum(*comm, at::full({1, 1}, 5e-324, at::kDouble)).item<double>(), 5e-324);
  parts[4][2].fill_(std::numeric_limits<double>::infinity());
  EXPECT_TRUE(order_free_sum(*comm, parts).isnan().all().item<bool>());
}

TEST(NetworkLasso, GoesToTheHostWhereADeviceHasNoProductForIt) {
  constexpr std::int64_t kTooLong = std::int64_t{1} << 26;
  EXPECT_TRUE(fits_on_device(1024, kTooLong - NetworkLasso::kStripe));
  EXPECT_FALSE(fits_on_device(2, kTooLong - NetworkLasso::kStripe + 1)) << "whole stripes count";
  EXPECT_FALSE(fits_on_device(1025, 1));
}

}  // namespace
}  // namespace fedhpc
