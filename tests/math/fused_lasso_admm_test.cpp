
#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "fedhpc/math/fused_lasso.hpp"

namespace fedhpc {
namespace {

/// Lambda x of every row x: x_i - x_{i+1}, and x_n in the last column.
Tensor first_differences(const Tensor& rows) {
  return rows - at::constant_pad_nd(rows, {0, 1}).narrow(1, 1, rows.size(1));
}

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
