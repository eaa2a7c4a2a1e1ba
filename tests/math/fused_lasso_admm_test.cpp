#include <cmath>
#include <numbers>

#include <ATen/TensorOperators.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "fedhpc/math/fused_lasso.hpp"

namespace fedhpc {
namespace {

/// Lambda [d, d] of the paper's section V.
Tensor lambda_of(std::int64_t d) {
  return first_differences(at::eye(d, at::kDouble)).t().contiguous();
}

double objective(const Tensor& u, const Tensor& g, double gamma) {
  return ((u - g).pow(2).sum() / 2 + gamma * first_differences(u).abs().sum()).item<double>();
}

Tensor exact(const Tensor& g, double gamma) {
  const Tensor u = g.clone();
  FusedLasso().prox_(u, gamma);
  return u;
}

/// What of the paper's Algorithm 3 is left as it is printed there.
struct Printed {
  bool threshold = false;  ///< rho, not 1 / rho
  bool factor = false;     ///< 4 / (rho eta gamma), not rho eta gamma
  bool inverse = false;    ///< P (factor Sigma + 1) P^-1, not its inverse
};

struct Setting {
  double gamma;
  double eta;
  double rho;
};

/// u = (x - y) / eta after `steps` steps of Algorithm 3 on y, from y = x and omega = 0, with dense
/// matrices throughout.
Tensor algorithm_3(const Tensor& g, const Tensor& x, const Setting& of, std::int64_t steps,
                   const Printed& printed) {
  const Tensor lambda = lambda_of(g.size(0));
  const auto [sigma, p] = at::linalg_eigh(lambda.t().matmul(lambda));
  const double product = of.rho * of.eta * of.gamma;
  const double factor = printed.factor ? 4 / product : product;
  const double threshold = printed.threshold ? of.rho : 1 / of.rho;
  const Tensor scaled = factor * sigma + 1;
  const Tensor matrix = p.mul(printed.inverse ? scaled : scaled.reciprocal()).matmul(p.t());
  Tensor y = x.clone();
  Tensor omega = at::zeros_like(x);
  for (std::int64_t j = 0; j < steps; ++j) {
    const Tensor a = lambda.matmul(y - x) - omega / of.rho;
    const Tensor r = a - a.clamp(-threshold, threshold);
    const Tensor b = r + lambda.matmul(x) + omega / of.rho;
    y = matrix.matmul(x - of.eta * g + factor * lambda.t().matmul(b));
    omega = omega + of.rho * (r - lambda.matmul(y - x));
  }
  return (x - y) / of.eta;
}

TEST(FirstDifferences, AreThoseOfThePapersExample) {
  const Tensor x = at::tensor({0., 0., 0., 0., -1., -1., 1., 1., 1., -1., 1., 1., 1., -1., 1., -1.})
                       .to(at::kDouble)
                       .view({4, 4});
  const Tensor moved = x.narrow(0, 1, 3) - x.narrow(0, 0, 3);
  const Tensor expected =
      at::tensor({0., -2., 0., 1., 2., 0., 0., 0., 0., 0., 2., -2.}).view({3, 4});
  EXPECT_TRUE(first_differences(moved).equal(expected.to(at::kDouble)));
  EXPECT_TRUE(first_differences(moved).equal(moved.matmul(lambda_of(4).t())));
  EXPECT_EQ(first_differences(at::zeros({2, 0})).numel(), 0);
}

TEST(FirstDifferences, HaveTheEigenvaluesOfAFreeAndAFixedEnd) {
  for (const std::int64_t d : {1, 2, 7, 40}) {
    const Tensor lambda = lambda_of(d);
    const Tensor sigma = std::get<0>(at::linalg_eigh(lambda.t().matmul(lambda)));
    for (std::int64_t k = 1; k <= d; ++k) {
      const double angle =
          static_cast<double>(2 * k - 1) * std::numbers::pi / static_cast<double>(2 * d + 1);
      EXPECT_NEAR(sigma[k - 1].item<double>(), 2 - 2 * std::cos(angle), 1e-14);
    }
  }
}

TEST(FusedLassoAdmm, ReachesTheExactSolution) {
  for (const std::int64_t n : {1, 2, 30, 300}) {
    for (const double gamma : {0.05, 0.5, 3.0}) {
      const Tensor g = at::randn({2, n}, at::kDouble);
      const Tensor u = g.clone();
      const FusedLassoAdmmReport report =
          fused_lasso_admm_(u, gamma, {.steps = 200'000, .rho = 1 / gamma, .tolerance = 1e-12});
      EXPECT_LT(report.steps, 200'000) << n << " " << gamma;
      EXPECT_LE(std::max(report.primal, report.dual), 1e-12);
      EXPECT_LT((u - exact(g, gamma)).abs().max().item<double>(), 1e-8) << n << " " << gamma;
    }
  }
}

TEST(FusedLassoAdmm, StopsAfterTheStepsAllowedAndSaysHowFarItIs) {
  const Tensor g = at::randn({1, 200}, at::kDouble);
  FusedLassoAdmmReport before{.primal = 1, .dual = 1};
  for (const std::int64_t steps : {1, 30, 900}) {
    const Tensor u = g.clone();
    const FusedLassoAdmmReport report = fused_lasso_admm_(u, 1, {.steps = steps, .tolerance = 0});
    EXPECT_EQ(report.steps, steps);
    EXPECT_GT(report.primal, 0);
    EXPECT_LT(report.primal, before.primal);
    EXPECT_LT(report.dual, before.dual);
    before = report;
  }
}

TEST(FusedLassoAdmm, LimitCases) {
  const Tensor g = at::randn({2, 50}, at::kFloat);
  const Tensor u = g.clone();
  EXPECT_EQ(fused_lasso_admm_(u, 0).steps, 0);
  EXPECT_TRUE(u.equal(g));
  EXPECT_EQ(fused_lasso_admm_(at::zeros({3, 0}), 1).steps, 0);
  const Tensor zeros = at::zeros({1, 5}, at::kDouble);
  EXPECT_EQ(fused_lasso_admm_(zeros, 1).steps, 0);
  EXPECT_EQ(zeros.abs().max().item<double>(), 0);
  const Tensor nan = at::full({1, 5}, std::nan(""), at::kDouble);
  EXPECT_EQ(fused_lasso_admm_(nan, 1, {.steps = 3}).steps, 3);
  EXPECT_TRUE(nan.isnan().all().item<bool>());
  fused_lasso_admm_(u, 0.4, {.steps = 20'000, .rho = 2, .tolerance = 1e-9});
  EXPECT_TRUE(u.allclose(exact(g, 0.4), 1e-5, 1e-6));
  EXPECT_THROW(fused_lasso_admm_(u, 1, {.rho = 0}), std::logic_error);
  EXPECT_THROW(fused_lasso_admm_(u, -1), std::logic_error);
}

TEST(FusedLassoAdmm, TakesTheStepsOfAlgorithm3InItsVariables) {
  const Setting of{.gamma = 0.6, .eta = 0.3, .rho = 1.7};
  const Tensor g = at::randn({20}, at::kDouble);
  const Tensor x = at::randn({20}, at::kDouble);
  for (const std::int64_t steps : {1, 2, 10}) {
    const Tensor y_form = algorithm_3(g, x, of, steps, {});
    const Tensor u = g.clone().unsqueeze(0);
    fused_lasso_admm_(u, of.gamma, {.steps = steps, .rho = of.rho * of.eta, .tolerance = 0});
    EXPECT_LT((u[0] - y_form).abs().max().item<double>(), 1e-12);
  }
}

TEST(FusedLassoAdmm, TheCorrectedFormulasReachTheOptimumThePrintedOnesMissIt) {
  const Tensor g = at::randn({12}, at::kDouble);
  const Tensor x = at::randn({12}, at::kDouble);
  for (const double rho : {0.5, 1.7}) {
    const Setting of{.gamma = 0.5, .eta = 1, .rho = rho};
    const auto gap = [&](const Printed& printed) {
      const Tensor u = algorithm_3(g, x, of, 1000, printed).unsqueeze(0);
      const Tensor row = g.unsqueeze(0);
      return objective(u, row, of.gamma) - objective(exact(row, of.gamma), row, of.gamma);
    };
    EXPECT_NEAR(gap({}), 0, 1e-10);
    const auto misses = [](double found) { return !(found < 0.01); };  // or diverges
    EXPECT_TRUE(misses(gap({.threshold = true}))) << rho << " " << gap({.threshold = true});
    EXPECT_TRUE(misses(gap({.factor = true}))) << rho << " " << gap({.factor = true});
    EXPECT_TRUE(misses(gap({.inverse = true}))) << rho << " " << gap({.inverse = true});
    EXPECT_TRUE(misses(gap({.threshold = true, .factor = true}))) << rho;
    EXPECT_TRUE(misses(gap({.threshold = true, .factor = true, .inverse = true}))) << rho;
  }
}

}  // namespace
}  // namespace fedhpc
