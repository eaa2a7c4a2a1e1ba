#include "fedhpc/math/binary_gp.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "fedhpc/math/cholesky.hpp"
#include "fedhpc/math/gp_tree.hpp"

#include "math/samples_support.hpp"

namespace fedhpc {
namespace {

using namespace testing_support;

double largest(const Tensor& values) { return values.abs().max().item<double>(); }

TEST(Cholesky, FactorsAndSolves) {
  for (const std::int64_t n : {1, 5, 48, 49, 130}) {
    const Tensor root = normals(static_cast<std::uint64_t>(n), n, n + 3);
    const Tensor matrix = root.matmul(root.t());
    const Tensor factor = matrix.clone();
    cholesky_(factor);
    const Tensor lower = factor.tril();
    EXPECT_LT(largest(lower.matmul(lower.t()) - matrix), 1e-11 * static_cast<double>(n)) << n;
    const Tensor right = normals(1, n, 3);
    Tensor solved = right.clone();
    solve_lower_(factor, solved);
    EXPECT_LT(largest(lower.matmul(solved) - right), 1e-9) << n;
    solved = right.clone();
    solve_lower_transposed_(factor, solved);
    EXPECT_LT(largest(lower.t().matmul(solved) - right), 1e-9) << n;
  }
}

TEST(Cholesky, OfAnIndefiniteMatrixIsNotANumber) {
  const Tensor matrix = normals(2, 6, 6);
  matrix[3][3].fill_(-100);
  cholesky_(matrix);
  EXPECT_TRUE(std::isnan(matrix[3][3].item<double>()));
}

constexpr std::int64_t kWidth = 4;
const std::vector<std::int64_t> kLabels{0, 2, 5, 0, 5, 2, 2, 0, 5, 5, 0, 2};

/// The samples' values, two of which are equal.
Tensor values_of_samples() {
  const Tensor values = normals(3, static_cast<std::int64_t>(kLabels.size()), kWidth);
  values[4].copy_(values[3]);
  return values;
}

/// Expects that `gradient` is that of `function` in `values`, by central differences.
void expect_differences(const Tensor& values, const Tensor& gradient,
                        const std::function<double()>& function, double step) {
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    double& value = values.data_ptr<double>()[i];
    const double before = value;
    value = before + step;
    const double above = function();
    value = before - step;
    const double below = function();
    value = before;
    EXPECT_NEAR(gradient.data_ptr<double>()[i], (above - below) / (2 * step), 1e-8) << i;
  }
}

class GpLoss : public ::testing::TestWithParam<Averaging> {
 protected:
  GpTreeSettings settings() const {
    return {.kernel = {.outputscale = 5, .lengthscale = 0.8, .jitter = 1e-2},
            .averaging = GetParam()};
  }
};

TEST_P(GpLoss, OfABinaryClassifierHasTheGradientOfFiniteDifferences) {
  const GpKernel kernel = settings().kernel;
  const Tensor units = unit_rows(normals(4, 7, kWidth));
  const Tensor scored_units = unit_rows(normals(5, 5, kWidth));
  const GpSamples known{units, {1, -1, -1, 1, 1, -1, 1}};
  const GpSamples scored{scored_units, {-1, 1, 1, -1, 1}};
  const Tensor omega = gibbs_draws(known, kernel, {.draws = 3, .steps = 2}, [](std::int64_t c) {
    return Draws({.epoch = static_cast<std::uint64_t>(c)});
  });
  const Tensor of_known = at::zeros_like(units);
  const Tensor of_scored = at::zeros_like(scored_units);
  const SideWeights weights{.plus = 2, .minus = 0.5};
  const auto loss = [&] {
    const Tensor nowhere = at::zeros_like(units);
    return gp_predictive_loss(known, scored, omega, kernel, GetParam(), nowhere,
                              at::zeros_like(scored_units), weights);
  };
  gp_predictive_loss(known, scored, omega, kernel, GetParam(), of_known, of_scored, weights);
  EXPECT_GT(largest(of_known), 1e-3);
  for (const auto& [values, gradient] :
       {std::pair(units, of_known), std::pair(scored_units, of_scored)}) {
    expect_differences(values, gradient, loss, 1e-5);
  }
}

TEST_P(GpLoss, OfATreeIsOfDirectionsAlone) {
  const Tensor values = values_of_samples();
  values[7].zero_();
  const ClassTree tree = class_tree(values, kLabels);
  ASSERT_EQ(tree.size(), 2U);
  const Tensor gradient = at::zeros_like(values);
  const GpDraws draws{.key = {.seed = 1}, .chains = {.draws = 4, .steps = 2}};
  const double loss =
      gp_tree_loss(tree, {.values = values, .labels = kLabels}, settings(), draws, gradient);
  EXPECT_GT(loss, 0.1);
  // The loss is a function of directions alone: the gradient is at a right angle to each sample.
  for (std::int64_t i = 0; i < values.size(0); ++i) {
    EXPECT_NEAR((values[i] * gradient[i]).sum().item<double>(), 0, 1e-12) << i;
  }
  EXPECT_EQ(largest(gradient[7]), 0) << "a row of zeros stays";
  // Twice as long, half the gradient.
  const Tensor longer = at::zeros_like(values);
  const Tensor twice = values.mul(2);
  EXPECT_NEAR(gp_tree_loss(tree, {.values = twice, .labels = kLabels}, settings(), draws, longer),
              loss, 1e-12);
  EXPECT_LT(largest(longer.mul(2) - gradient), 1e-12);
}

/// Three points of each class, the first of them equal to a sample; class 7 is no sample's.
const std::vector<std::int64_t> kPointLabels{0, 0, 0, 2, 2, 2, 5, 5, 5, 7, 7, 7};

TEST_P(GpLoss, ByInducingPointsIsOfDirectionsAlone) {
  const Tensor values = values_of_samples();
  const Tensor points = normals(11, static_cast<std::int64_t>(kPointLabels.size()), kWidth);
  points[0].copy_(values[0]);
  const ClassTree tree = class_tree(values, kLabels);
  const Tensor gradient = at::zeros_like(values);
  const Tensor of_points = at::zeros_like(points);
  const GpDraws draws{.key = {.seed = 1}, .chains = {.draws = 4, .steps = 2}};
  const double loss = gp_tree_loss(tree, {.values = values, .labels = kLabels},
                                   {.values = points, .labels = kPointLabels}, settings(), draws,
                                   gradient, of_points);
  EXPECT_GT(loss, 0.1);
  EXPECT_GT(largest(of_points), 1e-3);
  EXPECT_EQ(largest(of_points.narrow(0, 9, 3)), 0) << "of no class in the tree";
  EXPECT_LT(largest((points * of_points).sum(1)), 1e-12);
  EXPECT_LT(largest((values * gradient).sum(1)), 1e-12);
}

TEST_P(GpLoss, OfOneSideIsNone) {
  const Tensor values = values_of_samples();
  const Tensor points = normals(12, static_cast<std::int64_t>(kPointLabels.size()), kWidth);
  const std::vector<std::int64_t> of_one(kLabels.size(), 2);
  const Tensor gradient = at::zeros_like(values);
  const Tensor of_points = at::zeros_like(points);
  EXPECT_NEAR(
      gp_tree_loss({{.left = {0}, .right = {2}, .left_samples = 0, .right_samples = 9}},
                   {.values = values, .labels = of_one}, {.values = points, .labels = kPointLabels},
                   settings(), {}, gradient, of_points),
      0, 1e-11);
  EXPECT_EQ(largest(gradient) + largest(of_points), 0);
  // A batch of one side, of a client that has both.
  EXPECT_GT(
      gp_tree_loss({{.left = {0}, .right = {2}, .left_samples = 4, .right_samples = 5}},
                   {.values = values, .labels = of_one}, {.values = points, .labels = kPointLabels},
                   settings(), {}, gradient, of_points),
      0.01);
  EXPECT_GT(largest(gradient), 1e-4);
  EXPECT_GT(largest(of_points), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Averagings, GpLoss,
                         ::testing::Values(Averaging::Probability, Averaging::LogProbability));

TEST(UnitRows, HaveTheGradientOfFiniteDifferences) {
  const Tensor values = normals(6, 3, kWidth);
  const Tensor weights = normals(7, 3, kWidth);
  const Tensor gradient = gradient_through_unit_rows(values, unit_rows(values), weights);
  const auto sum = [&] { return (unit_rows(values) * weights).sum().item<double>(); };
  expect_differences(values, gradient, sum, 1e-6);
}

TEST(GpTree, ProbabilitiesOfAllClassesSumToOne) {
  const Tensor values = values_of_samples();
  for (const Averaging averaging : {Averaging::Probability, Averaging::LogProbability}) {
    const GpTree tree({.values = values, .labels = kLabels}, {.averaging = averaging}, {});
    const Tensor table = tree.log_probabilities(normals(8, 6, kWidth), 7);
    EXPECT_LT(largest(table.exp().sum(1) - 1), 1e-10);
    for (const std::int64_t absent : {1, 3, 4, 6}) {
      EXPECT_LT(largest(table.select(1, absent) - std::log(kLeastProbability)), 1e-12);
    }
  }
}

TEST(GpTree, KnowsWhatItHasSeenAndNothingWithoutSamples) {
  const std::vector<std::int64_t> labels{3, 1, 3, 1};
  const Tensor values = normals(10, 4, 6);
  const GpTree tree({.values = values, .labels = labels}, {.kernel = {.outputscale = 50}},
                    {.chains = {.draws = 40, .steps = 10}});
  const Tensor table = tree.log_probabilities(values, 4);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    EXPECT_EQ(table[static_cast<std::int64_t>(i)].argmax().item<std::int64_t>(), labels[i]);
  }
  const std::vector<std::int64_t> one{2};
  const GpTree sure({.values = values.narrow(0, 0, 1), .labels = one}, {}, {});
  EXPECT_NEAR(sure.log_probabilities(values, 4)[3][2].item<double>(), 0, 1e-11);
  const GpTree empty({.values = values.narrow(0, 0, 0), .labels = {}}, {}, {});
  const Tensor even = empty.log_probabilities(values, 4);
  EXPECT_EQ(even.max().item<double>(), even.min().item<double>());
  EXPECT_EQ(empty.log_probabilities(values.narrow(0, 0, 0), 4).size(0), 0);
}

TEST(GpTree, KnowsPointsAsItKnowsSamples) {
  // As many of either side among points as among samples: nothing is weighed.
  const std::vector<std::int64_t> labels{3, 1, 3, 1, 1, 3};
  const std::span<const std::int64_t> all(labels);
  const Tensor values = normals(13, 6, kWidth);
  const GpDraws draws{.chains = {.draws = 5, .steps = 3}};
  const GpTree whole({.values = values, .labels = labels}, {}, draws);
  const GpTree parts({.values = values.narrow(0, 0, 4), .labels = all.first(4)},
                     {.values = values.narrow(0, 4, 2), .labels = all.subspan(4)}, {}, draws);
  const Tensor others = normals(14, 5, kWidth);
  EXPECT_TRUE(parts.log_probabilities(others, 4).equal(whole.log_probabilities(others, 4)));
}

TEST(GpTree, NanValuesEndInNan) {
  const Tensor values = values_of_samples();
  values.fill_(std::nan(""));
  const GpTree tree({.values = values, .labels = kLabels}, {}, {});
  EXPECT_TRUE(std::isnan(tree.log_probabilities(values, 6)[0][0].item<double>()));
  const Tensor gradient = at::zeros_like(values);
  EXPECT_TRUE(std::isnan(gp_tree_loss(class_tree(values, kLabels),
                                      {.values = values, .labels = kLabels}, {}, {}, gradient)));
}

}  // namespace
}  // namespace fedhpc
