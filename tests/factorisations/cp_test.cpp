#include "fedhpc/factorisations/cp.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/IListRef.h>
#include <gtest/gtest.h>

namespace fedhpc {
namespace {

using Sizes = std::vector<std::int64_t>;

Tensor random(const Sizes& sizes) { return at::randn(sizes, at::kDouble); }

/// The factors in u [q], mode 1 first.
std::vector<Tensor> factors_in(const Cp& cp, const Tensor& u) {
  std::vector<Tensor> factors;
  std::int64_t next = 0;
  for (const FactorShape& shape : cp.factors()) {
    factors.push_back(u.narrow(0, next, shape.count()).reshape(shape.sizes));
    next += shape.count();
  }
  return factors;
}

/// [[A1, ..., AN]] by the definition, a sum of R outer products, as a tensor [I_N, ..., I_1].
Tensor composed(const std::vector<Tensor>& factors) {
  Tensor sum;
  for (std::int64_t r = 0; r < factors[0].size(1); ++r) {
    Tensor product = factors.back().select(1, r);
    for (std::size_t n = factors.size() - 1; n-- > 0;) {
      product = product.unsqueeze(-1) * factors[n].select(1, r);
    }
    sum = sum.defined() ? sum + product : product;
  }
  return sum;
}

/// The matrix of mode n (from 0): its columns are the fibres of that mode, earlier modes running
/// fastest (Kolda and Bader 2009). `w` is stored as [I_N, ..., I_1].
Tensor unfolded(const Tensor& w, std::int64_t n) {
  const std::int64_t dimension = w.dim() - 1 - n;
  return w.movedim(dimension, 0).reshape({w.size(dimension), -1});
}

/// A^(N) x ... x A^(n+1) x A^(n-1) x ... x A^(1), column-wise Kronecker products.
Tensor khatri_rao_but(const std::vector<Tensor>& factors, std::size_t n) {
  Tensor product;
  for (std::size_t m = factors.size(); m-- > 0;) {
    if (m == n) continue;
    product = product.defined()
                  ? (product.unsqueeze(1) * factors[m].unsqueeze(0)).reshape({-1, product.size(1)})
                  : factors[m];
  }
  return product;
}

/// V_n of equation (16).
Tensor gram_but(const std::vector<Tensor>& factors, std::size_t n) {
  Tensor product;
  for (std::size_t m = 0; m < factors.size(); ++m) {
    if (m == n) continue;
    const Tensor gram = factors[m].t().matmul(factors[m]);
    product = product.defined() ? product * gram : gram;
  }
  return product;
}

struct Case {
  Sizes sizes;
  std::int64_t rank;
};

class CpOfOrder : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr std::int64_t kClients = 3;
  Sizes sizes_ = GetParam().sizes;
  Cp cp_{{.sizes = sizes_, .fan_in = 1}, GetParam().rank, {}};
  std::int64_t count_ = WeightShape{sizes_, 1}.count();
};

TEST_P(CpOfOrder, ExpandsToTheSumOfOuterProducts) {
  // Rows of wider tensors: a row's neighbours stay as they are.
  const Tensor u = random({kClients, cp_.count() + 2}).narrow(1, 1, cp_.count());
  const Tensor wide = at::full({kClients, count_ + 2}, 7.0, at::kDouble);
  cp_.expand_(u, wide.narrow(1, 1, count_));
  for (std::int64_t c = 0; c < kClients; ++c) {
    const Tensor expected = composed(factors_in(cp_, u[c])).reshape({-1});
    EXPECT_LT((wide[c].narrow(0, 1, count_) - expected).abs().max().item<double>(), 1e-12);
    EXPECT_EQ(wide[c][0].item<double>(), 7);
    EXPECT_EQ(wide[c][count_ + 1].item<double>(), 7);
  }
}

TEST_P(CpOfOrder, PullsBackWhatAutogradGives) {
  const Tensor u = random({kClients, cp_.count()});
  const Tensor dw = random({kClients, count_});
  const Tensor du = at::full({kClients, cp_.count()}, std::nan(""), at::kDouble);
  cp_.pullback_(u, dw, du);
  for (std::int64_t c = 0; c < kClients; ++c) {
    const Tensor leaf = u[c].clone().set_requires_grad(true);
    const Tensor loss = (composed(factors_in(cp_, leaf)).reshape({-1}) * dw[c]).sum();
    loss.backward();
    EXPECT_LT((du[c] - leaf.grad()).abs().max().item<double>(), 1e-11);
  }
}

TEST_P(CpOfOrder, GradientOfTheDistanceIsEquation23AndNot15) {
  // d/dA^(n) of lambda/2 ||theta - [[A]]||^2, against central differences.
  constexpr double kLambda = 12;
  constexpr double kStep = 1e-6;
  const Tensor u = random({1, cp_.count()});
  const Tensor theta = random({1, count_});
  Tensor composed_row = at::empty({1, count_}, at::kDouble);
  Tensor gradient = at::empty({1, cp_.count()}, at::kDouble);
  cp_.expand_(u, composed_row);
  cp_.pullback_(u, kLambda * (composed_row - theta), gradient);
  const auto loss = [&](const Tensor& at) {
    cp_.expand_(at, composed_row);
    return 0.5 * kLambda * (theta - composed_row).square().sum().item<double>();
  };
  Tensor numeric = at::empty({cp_.count()}, at::kDouble);
  for (std::int64_t i = 0; i < cp_.count(); ++i) {
    Tensor up = u.clone();
    Tensor down = u.clone();
    up[0][i] += kStep;
    down[0][i] -= kStep;
    numeric[i] = (loss(up) - loss(down)) / (2 * kStep);
  }
  const auto error = [&](const Tensor& candidate) {
    return ((candidate - numeric).norm() / numeric.norm()).item<double>();
  };
  EXPECT_LT(error(gradient[0]), 1e-7);

  const std::vector<Tensor> factors = factors_in(cp_, u[0]);
  Sizes stored = sizes_;
  const Tensor tensor = theta.reshape(stored);
  std::vector<Tensor> corrected;
  std::vector<Tensor> printed;
  for (std::size_t n = 0; n < factors.size(); ++n) {
    const Tensor products =
        unfolded(tensor, static_cast<std::int64_t>(n)).matmul(khatri_rao_but(factors, n));
    const Tensor rest = factors[n].matmul(gram_but(factors, n));
    corrected.push_back((kLambda * (rest - products)).reshape({-1}));
    printed.push_back((kLambda * products + rest).reshape({-1}));
  }
  EXPECT_LT(error(at::cat(corrected)), 1e-7);
  EXPECT_GT(error(at::cat(printed)), 0.1);
}

TEST_P(CpOfOrder, TakesTheGradientOfTheDistanceFromTheResidual) {
  const Tensor u = random({kClients, cp_.count()});
  const Tensor w = random({kClients, count_});
  Tensor composed_rows = at::empty({kClients, count_}, at::kDouble);
  Tensor expected = at::empty({kClients, cp_.count()}, at::kDouble);
  Tensor gradient = at::empty({kClients, cp_.count()}, at::kDouble);
  cp_.expand_(u, composed_rows);
  cp_.pullback_(u, 12 * (composed_rows - w), expected);
  cp_.distance_gradient_(u, w, 12, gradient);
  EXPECT_LT(((gradient - expected).norm() / expected.norm()).item<double>(), 1e-13);

  // Of weights that the factors give exactly, 0 to the last bit, in float32 too: Adam would make
  // full steps of anything else.
  const Tensor single = u.to(at::kFloat);
  Tensor exact = at::empty({kClients, count_}, at::kFloat);
  Tensor none = at::ones({kClients, cp_.count()}, at::kFloat);
  cp_.expand_(single, exact);
  cp_.distance_gradient_(single, exact, 12, none);
  EXPECT_EQ(none.abs().max().item<double>(), 0);
}

TEST_P(CpOfOrder, FitsWhatItCanRepresent) {
  const Tensor u = random({1, cp_.count()});
  Tensor w = at::empty({1, count_}, at::kDouble);
  cp_.expand_(u, w);
  const Tensor start = u[0] + 0.1 * random({cp_.count()});
  const Tensor fitted = cp_.fit(w[0], start, /*sweeps=*/400);
  Tensor again = at::empty({1, count_}, at::kDouble);
  cp_.expand_(fitted.unsqueeze(0), again);
  EXPECT_LT(((again - w).norm() / w.norm()).item<double>(), sizes_.size() == 2 ? 1e-13 : 1e-3);
}

TEST_P(CpOfOrder, FitNeverGetsWorseWithMoreSweeps) {
  const Tensor w = random({count_});
  const Tensor start = random({cp_.count()});
  double before = std::numeric_limits<double>::infinity();
  for (std::int64_t sweeps = 0; sweeps < 6; ++sweeps) {
    Tensor fitted = at::empty({1, count_}, at::kDouble);
    cp_.expand_(cp_.fit(w, start, sweeps).unsqueeze(0), fitted);
    const double error = (fitted[0] - w).norm().item<double>();
    EXPECT_LE(error, before * (1 + 1e-9) + 1e-12) << sweeps << " sweeps";
    before = error;
  }
}

TEST_P(CpOfOrder, InitialWeightsHaveTheVarianceAskedFor) {
  const Cp cp({.sizes = sizes_, .fan_in = 8}, GetParam().rank, {});
  const double sigma = cp.initial_deviation();
  const auto order = static_cast<double>(sizes_.size());
  EXPECT_NEAR(static_cast<double>(cp.rank()) * std::pow(sigma, 2 * order), 2.0 / 8, 1e-12);
}

INSTANTIATE_TEST_SUITE_P(Orders, CpOfOrder,
                         ::testing::Values(Case{{5, 4}, 3}, Case{{3, 7}, 5}, Case{{40, 700}, 11},
                                           Case{{4, 3, 5}, 2}, Case{{6, 5, 4, 3}, 3},
                                           Case{{7, 2, 3, 3}, 9}, Case{{2, 3, 4, 3, 2}, 3},
                                           Case{{3, 1, 2}, 2}),
                         [](const auto& one) {
                           std::string name = "rank" + std::to_string(one.param.rank);
                           for (const std::int64_t size : one.param.sizes) {
                             name += "_" + std::to_string(size);
                           }
                           return name;
                         });

TEST(Cp, TruncatesAMatrixAtItsSingularValues) {
  const Tensor w = random({6, 9});
  Cp cp({.sizes = {6, 9}, .fan_in = 9}, 2, {});
  Tensor fitted = at::empty({1, 54}, at::kDouble);
  cp.expand_(cp.fit(w.reshape({-1}), at::zeros({30}, at::kDouble), 1).unsqueeze(0), fitted);
  const Tensor values = std::get<1>(at::linalg_svd(w));
  EXPECT_NEAR((fitted[0] - w.reshape({-1})).square().sum().item<double>(),
              values.narrow(0, 2, 4).square().sum().item<double>(), 1e-12);
}

TEST(Cp, ASweepSolvesLeastSquaresModeByMode) {
  const Sizes sizes{4, 3, 5};
  Cp cp({.sizes = sizes, .fan_in = 15}, 2, {});
  const Tensor w = random(sizes);
  const Tensor start = random({cp.count()});
  std::vector<Tensor> factors = factors_in(cp, start);
  for (std::size_t n = 0; n < 3; ++n) {
    const Tensor h = khatri_rao_but(factors, n);
    factors[n] =
        std::get<0>(at::linalg_lstsq(h, unfolded(w, static_cast<std::int64_t>(n)).t())).t();
  }
  const std::vector<Tensor> fitted = factors_in(cp, cp.fit(w.reshape({-1}), start, 1));
  for (std::size_t n = 0; n < 3; ++n) {
    EXPECT_LT((fitted[n] - factors[n]).abs().max().item<double>(), 1e-7) << "mode " << n + 1;
  }
}

TEST(Cp, RanksOfTableI) {
  struct Row {
    Sizes sizes;
    std::int64_t at_1_5;
    std::int64_t at_2;
  };
  const std::vector<Row> rows{
      {{100, 784}, 59, 44},         {{10, 100}, 6, 5},           {{32, 3, 3, 3}, 14, 11},
      {{64, 32, 3, 3}, 120, 90},    {{128, 64, 3, 3}, 248, 186}, {{256, 128, 3, 3}, 504, 378},
      {{256, 256, 3, 3}, 759, 569}, {{256, 256}, 85, 64},        {{10, 256}, 6, 5}};
  for (const Row& row : rows) {
    const WeightShape shape{.sizes = row.sizes, .fan_in = 1};
    EXPECT_EQ(Cp::rank_of(shape, {1.5}), row.at_1_5);
    EXPECT_EQ(Cp::rank_of(shape, {2}), row.at_2);
  }
  EXPECT_EQ(Cp::rank_of({.sizes = {2, 2}, .fan_in = 2}, {100}), 1);
}

}  // namespace
}  // namespace fedhpc
