#include <string>
#include <vector>

#include <ATen/ops/eye.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "fixtures/factor_case.hpp"
#include "reference/fedavg_reference.hpp"
#include "reference/fedhm_reference.hpp"
#include "reference/fedlmt_reference.hpp"
#include "reference/fedmud_reference.hpp"
#include "reference/fedpara_reference.hpp"

// Where a method of factors comes down to another one, so do the plain references; sizes are those
// that the authors' code gives.
namespace fedhpc::testing {
namespace {

using reference::FactorisationSettings;
using reference::FactorisedLayer;
using reference::FactorisedModel;
using reference::FactorOutcome;
using reference::Problem;

Problem problem_of(const Keys& changes = {}) {
  Keys keys{{"model.hidden", "9,7,5"}};
  keys.insert(changes.begin(), changes.end());
  return reference::make_problem(tiny_keys(keys));
}

Problem convolutions(const Keys& changes = {}) { return problem_of(with_batch_norm(changes)); }

TEST(FactorReferences, UnitConstantsOfFullRankAreFedAvg) {
  for (const Problem& problem :
       {problem_of({{"topology.participation", "0.4"}}),
        convolutions({{"train.optimizer", "momentum"}, {"train.momentum", "0.5"}})}) {
    for (const std::int64_t interval : {1, 2}) {
      const FactorOutcome fedmud = reference::fedmud(
          problem, {.factorisation = {.name = "low_rank_f", .ranks = {40}, .exclude = {"first"}},
                    .reset_interval = interval,
                    .identity = true});
      const reference::Outcome fedavg = reference::fedavg(problem);
      EXPECT_LT(distance(fedmud.outcome.global, fedavg.global), 1e-12);
      EXPECT_NEAR(fedmud.outcome.train_loss.back(), fedavg.train_loss.back(), 1e-12);
    }
  }
}

TEST(FactorReferences, UnitConstantsOnBothSidesAreFedAvgAtTwiceTheRate) {
  Problem problem = convolutions({{"model.norm", "none"}});
  for (const bool permuted : {false, true}) {
    const FactorOutcome fedmud = reference::fedmud(
        problem, {.factorisation =
                      {.name = "low_rank_aad", .ranks = {32}, .exclude = {}, .permuted = permuted},
                  .identity = true});
    Problem faster = problem;
    faster.optimizer.lr *= 2;
    EXPECT_LT(distance(fedmud.outcome.global, reference::fedavg(faster).global), 1e-12);
  }
}

TEST(FactorReferences, FedMUDFromFactorsIsFedLMT) {
  const Problem problem = convolutions({{"topology.participation", "0.6"}});
  const FactorisationSettings settings{.name = "low_rank", .exclude = {"first"}, .permuted = true};
  const FactorOutcome fedmud = reference::fedmud(
      problem,
      {.factorisation = settings, .range = 0.6, .reset_interval = 3, .start_from_factors = true});
  const FactorOutcome fedlmt = reference::fedlmt(problem, settings, 0.6);
  EXPECT_TRUE(fedmud.outcome.global.equal(fedlmt.outcome.global));
  EXPECT_EQ(fedmud.aggregation_gap, fedlmt.aggregation_gap);
  EXPECT_EQ(fedmud.effective_rank, fedlmt.effective_rank);
}

TEST(FactorReferences, OnlyProductsOfTrainedFactorsHaveGaps) {
  const Problem problem = problem_of();
  for (const std::string name :
       {"low_rank", "low_rank_f", "low_rank_aad", "kronecker", "kronecker_f", "kronecker_aad"}) {
    const FactorOutcome fedmud = reference::fedmud(
        problem, {.factorisation = {.name = name}, .range = 0.7, .reset_interval = 2});
    const bool fixed = name.ends_with("_f") || name.ends_with("_aad");
    for (const double gap : fedmud.aggregation_gap) {
      if (fixed) {
        EXPECT_LT(gap, 1e-13) << name;
      } else {
        EXPECT_GT(gap, 1e-6) << name;
      }
    }
  }
}

TEST(FactorReferences, FedHMKeepsFullRanksAndTruncatesOnce) {
  Problem problem = convolutions();
  problem.optimizer.lr = 0;
  const FactorOutcome full =
      reference::fedhm(problem, {.name = "low_rank", .ranks = {32}, .exclude = {}});
  const reference::Outcome fedavg = reference::fedavg(problem);
  EXPECT_LT(distance(full.outcome.global, fedavg.global), 1e-13);
  const FactorOutcome half = reference::fedhm(problem, {.name = "low_rank", .ranks = {2}});
  EXPECT_GT(distance(half.outcome.global, fedavg.global), 1e-3);
  EXPECT_LT(half.truncation_error.back(), 1e-13);
}

/// Trainable numbers of the row of factors.
std::int64_t trained(const Problem& problem, const FactorisedModel& model) {
  return model.row_size() - problem.layout->count(Tag::Buffer);
}

Problem of_layers(const std::string& name, const std::vector<std::int64_t>& shape,
                  std::int64_t classes) {
  ModelOptions options;
  options.name = name;
  Problem problem;
  problem.layout = make_model(options, shape, classes)->layout();
  return problem;
}

TEST(FactorReferences, WholeModelsHaveThePublishedSizes) {
  const Problem cnn4 = of_layers("cnn4", {1, 28, 28}, 10);
  const Problem svhn = of_layers("cnn4", {3, 32, 32}, 10);
  const Problem cnn8 = of_layers("cnn8", {3, 32, 32}, 10);
  const Problem cnn10 = of_layers("cnn10", {3, 32, 32}, 10);
  const auto size = [](const Problem& problem, const std::string& name) {
    return trained(
        problem, FactorisedModel(problem, {.name = name, .compression = 32, .whole_model = true}));
  };
  EXPECT_EQ(size(cnn4, "low_rank"), 11872);
  EXPECT_EQ(size(cnn4, "low_rank_aad"), 11872);
  EXPECT_EQ(size(cnn4, "low_rank_f"), 12544);
  EXPECT_EQ(size(cnn4, "kronecker"), 12008);
  EXPECT_EQ(size(cnn4, "kronecker_aad"), 12008);
  EXPECT_EQ(size(cnn4, "kronecker_f"), 12481);
  EXPECT_EQ(size(svhn, "low_rank"), 14080);
  EXPECT_EQ(size(svhn, "kronecker"), 14082);
  EXPECT_EQ(size(cnn8, "low_rank"), 37408);
  EXPECT_EQ(size(cnn8, "kronecker"), 37624);
  EXPECT_EQ(size(cnn10, "low_rank"), 151840);
  EXPECT_EQ(size(cnn10, "kronecker"), 152026);
}

/// One layer with a weight of this shape.
FactorisedLayer layer_of(const FactorisationSettings& settings,
                         const std::vector<std::int64_t>& shape, std::int64_t size) {
  Layout layout;
  layout.add("conv.weight", shape, 1, Tag::Trainable);
  return {settings, 0, layout.fields()[0], size};
}

reference::Parameters random_factors(const FactorisedLayer& layer) {
  reference::Parameters factors;
  for (const auto& shape : layer.shapes()) factors.push_back(at::randn(shape, at::kDouble));
  return factors;
}

TEST(FactorReferences, EntriesAreThoseOfTheDefinitions) {
  const std::vector<std::int64_t> shape{2, 3, 2, 2};  // matrix 4 x 6
  for (const bool permuted : {false, true}) {
    const FactorisedLayer low_rank = layer_of({.name = "low_rank", .permuted = permuted}, shape, 2);
    const reference::Parameters factors = random_factors(low_rank);
    const Tensor w = low_rank.expand({}, factors);
    ASSERT_EQ(w.sizes().vec(), shape);
    const Tensor product = factors[0].matmul(factors[1].t());
    EXPECT_TRUE(low_rank.matrix(w).equal(product));
    // Kernel [1, 2, 0, 1] is number 1 * 12 + 2 * 4 + 0 * 2 + 1 of the raw matrix.
    const Tensor entry = permuted ? product[1 * 2 + 0][2 * 2 + 1] : product[21 / 6][21 % 6];
    EXPECT_EQ(w[1][2][0][1].item<double>(), entry.item<double>());
    const reference::Parameters again = low_rank.fit(w);
    EXPECT_LT(distance(low_rank.expand({}, again), w), 1e-13);
  }
  for (const bool grid : {false, true}) {
    // Four blocks of 2^2 x 2^2 cover 42 numbers, the last one not at all when stacked.
    const FactorisedLayer blocks = layer_of({.name = "kronecker", .grid = grid}, {7, 6}, 4);
    const reference::Parameters factors = random_factors(blocks);
    ASSERT_EQ(factors[0].sizes().vec(), (std::vector<std::int64_t>{4, 2, 2}));
    const Tensor w = blocks.expand({}, factors).reshape({-1});
    for (const std::int64_t flat : {0, 5, 17, 33, 41}) {
      const std::int64_t width = grid ? 8 : 4;
      const std::int64_t row = flat / width;
      const std::int64_t column = flat % width;
      const std::int64_t b = grid ? row / 4 * 2 + column / 4 : row / 4;
      const double u = factors[0][b][row % 4 / 2][column % 4 / 2].item<double>();
      const double v = factors[1][b][row % 2][column % 2].item<double>();
      EXPECT_EQ(w[flat].item<double>(), u * v) << flat;
    }
  }
  const FactorisedLayer hadamard = layer_of({.name = "hadamard"}, shape, 2);
  const reference::Parameters f = random_factors(hadamard);
  double halves[2] = {0, 0};
  for (std::size_t j = 0; j < 2; ++j) {
    for (std::int64_t p = 0; p < 2; ++p) {
      for (std::int64_t q = 0; q < 2; ++q) {
        halves[j] += f[3 * j][p][q][0][1].item<double>() * f[3 * j + 1][1][p].item<double>() *
                     f[3 * j + 2][2][q].item<double>();
      }
    }
  }
  EXPECT_NEAR(hadamard.expand({}, f)[1][2][0][1].item<double>(), halves[0] * halves[1], 1e-14);
}

TEST(FactorReferences, EffectiveRankCountsEqualSingularValues) {
  EXPECT_NEAR(reference::effective_rank(at::eye(5, 9, at::kDouble)), 5, 1e-12);
  EXPECT_NEAR(reference::effective_rank(at::eye(3, at::kDouble).mul(0.01)), 3, 1e-12);
  EXPECT_EQ(reference::effective_rank(at::eye(4, at::kDouble).mul(0)), 0);
}

TEST(FactorReferences, NormalFactorsGiveTheVariance) {
  for (const std::string name : {"low_rank", "hadamard"}) {
    const Problem cnn4 = of_layers("cnn4", {3, 32, 32}, 10);
    const FactorisedModel model(cnn4, {.name = name, .compression = 4});
    const std::vector<reference::Parameters> factors = model.normal_factors(3);
    for (std::size_t l = 0; l < factors.size(); ++l) {
      const FactorisedLayer& layer = model.layers()[l];
      const Tensor w = layer.expand({}, factors[l]);
      const double variance =
          2.0 / static_cast<double>(cnn4.layout->fields()[layer.place()].fan_in);
      EXPECT_NEAR(w.square().mean().item<double>() / variance, 1, 0.25) << name << l;
    }
  }
}

}  // namespace
}  // namespace fedhpc::testing
