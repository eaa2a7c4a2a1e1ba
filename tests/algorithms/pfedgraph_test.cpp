#include "fedhpc/algorithms/pfedgraph.hpp"

#include <limits>
#include <string>
#include <vector>

#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/factor_case.hpp"
#include "fixtures/message_passing_case.hpp"
#include "fixtures/resumed_run.hpp"
#include "reference/pfedgraph_reference.hpp"

namespace fedhpc::testing {
namespace {

Keys with_pfedgraph(Keys changes = {}) {
  changes.insert(
      {{"algorithm.name", "pfedgraph"}, {"algorithm.alpha", "0.4"}, {"algorithm.lambda", "0.5"}});
  return tiny_keys(changes);
}

reference::PFedGraphOutcome expected_of(const Keys& keys) {
  reference::Problem problem = reference::make_problem(keys);
  return reference::pfedgraph(problem, {.alpha = std::stod(own_value(keys, "alpha", "0.8")),
                                        .lambda = std::stod(own_value(keys, "lambda", "0.01")),
                                        .alike = std::stod(own_value(keys, "alike", "1"))});
}

class PFedGraphReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(PFedGraphReference, EqualsPlainLoop) {
  const Keys keys = with_pfedgraph(GetParam().changes);
  const reference::PFedGraphOutcome expected = expected_of(keys);
  ASSERT_LT(expected.own_weight.back(), 0.98) << "models meet";
  ASSERT_GT(expected.nearest_to_alike, 1e-3) << "rounding decides nothing";
  const Tensor models = flatten_all(expected.models);
  Keys without = keys;
  without["algorithm.lambda"] = "0";
  ASSERT_GT(distance(models, flatten_all(expected_of(without).models)), 1e-4) << "the term acts";
  const TinyResult result = expect_equals_reference(
      keys, {.global = models, .train_loss = expected.train_loss}, GetParam().single_bound);
  Keys received = keys;
  received["algorithm.evaluate"] = "received";
  const TinyResult next = run(received, *world_communicator(60));
  EXPECT_LT(distance(next.personal, flatten_all(expected.clouds)), 1e-9);
  expect_personal_accuracy(keys, result, expected.models);
  expect_personal_accuracy(keys, next, expected.clouds);
  if (world_communicator(60)->rank() != 0) return;
  expect_series(keys, result, "own_weight", expected.own_weight, 1e-9);
  expect_series(keys, result, "collaborators", expected.collaborators, 1e-12);
}

/// Where a column has no gradient but the term's, that is rounding at first, and in float32 Adam
/// takes full steps along it.
std::vector<ReferenceCase> settings() {
  std::vector<ReferenceCase> cases = all_cases();
  for (ReferenceCase& one : cases) {
    if (one.name == "adam") one.single_bound = 0.1;
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Settings, PFedGraphReference, ::testing::ValuesIn(settings()), name_of);
INSTANTIATE_TEST_SUITE_P(FallingRate, PFedGraphReference, ::testing::ValuesIn(falling_lr_cases()),
                         name_of);
INSTANTIATE_TEST_SUITE_P(
    Graphs, PFedGraphReference,
    ::testing::Values(ReferenceCase{"wide", {{"algorithm.alpha", "2"}, {"train.block", "3"}}},
                      ReferenceCase{"narrow", {{"algorithm.alpha", "0.2"}, {"run.rounds", "5"}}},
                      ReferenceCase{"repelled", {{"algorithm.lambda", "-0.5"}}},
                      ReferenceCase{"alike", {{"algorithm.alike", "0.5"}, {"run.rounds", "4"}}},
                      ReferenceCase{"uniform",
                                    {{"algorithm.weighting", "uniform"},
                                     {"topology.participation", "0.6"},
                                     {"run.rounds", "6"}}}),
    name_of);

Tensor matrix_of(const std::vector<double>& numbers, std::int64_t rows) {
  const Tensor matrix = at::empty({std::ssize(numbers)}, at::kDouble);
  std::copy(numbers.begin(), numbers.end(), matrix.data_ptr<double>());
  return matrix.view({rows, -1});
}

TEST(PFedGraph, TheGraphSolvesItsProblem) {
  const std::vector<double> sizes{10, 30, 5, 55};
  const std::vector<double> p{0.1, 0.3, 0.05, 0.55};
  const std::vector<double> c{1, 0.3, 0.8, -0.2, 0.3, 1, 0, 0.1, 0.8, 0, 1, 0.5, -0.2, 0.1, 0.5, 1};
  for (const double alpha : {0.01, 0.3, 0.8, 4.0, 1e6}) {
    const Tensor w = PFedGraph::graph_of(matrix_of(c, 4), matrix_of(sizes, 1)[0], alpha, 1);
    for (std::int64_t i = 0; i < 4; ++i) {
      const std::vector<double> expected =
          reference::graph_row({c.begin() + 4 * i, c.begin() + 4 * i + 4}, p, alpha);
      for (std::int64_t j = 0; j < 4; ++j) {
        EXPECT_NEAR(w[i][j].item<double>(), expected[static_cast<std::size_t>(j)], 1e-13) << alpha;
      }
    }
  }
}

TEST(PFedGraph, CosinesThatAreAlikeOrNoNumberHavePlaces) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor sizes = at::full({3}, 2.0, at::kDouble);
  const Tensor w = PFedGraph::graph_of(matrix_of({1, 0.95, nan, 0.95, 1, nan, nan, nan, nan}, 3),
                                       sizes, 0.1, 0.9);
  EXPECT_TRUE(w.isfinite().all().item<bool>());
  EXPECT_TRUE(w.equal(matrix_of({0.5, 0.5, 0, 0.5, 0.5, 0, 0, 0, 1}, 3))) << w;
  const Tensor alike =
      PFedGraph::graph_of(matrix_of({1, 0.95, nan, 0.95, 1, nan, nan, nan, nan}, 3), sizes, 1e9, 1);
  EXPECT_EQ(alike.select(1, 2).sum().item<double>(), 1) << "nobody else takes it";
}

/// The models of the clients that have training samples.
Tensor of_trained(const TinyResult& result) {
  const Tensor models = result.personal.reshape({7, -1});
  return at::cat({models.narrow(0, 0, 3), models.narrow(0, 4, 3)});
}

TEST(PFedGraph, FarFromTheCosinesItIsFedAvg) {
  const auto world = world_communicator(60);
  for (const Keys& setting :
       {Keys{}, with_batch_norm(), Keys{{"algorithm.weighting", "uniform"}}}) {
    Keys keys = with_pfedgraph(setting);
    keys["algorithm.alpha"] = "1e15";
    keys["algorithm.evaluate"] = "received";
    keys["algorithm.lambda"] = "0";
    const Tensor fedavg = run(tiny_keys(setting), *world).global;
    const Tensor models = of_trained(run(keys, *world));
    for (std::int64_t k = 0; k < models.size(0); ++k) {
      EXPECT_LT(distance(models[k], fedavg), 1e-12);
    }
  }
}

TEST(PFedGraph, NearTheCosinesEveryClientIsAlone) {
  for (const std::string alpha : {"0.01", "1e-300"}) {
    expect_every_client_alone(
        with_pfedgraph({{"algorithm.alpha", alpha}, {"algorithm.lambda", "0"}}));
  }
}

TEST(PFedGraph, ThoseThatMeetNobodyAreAlone) {
  const Keys alone{{"algorithm.lambda", "0"}, {"topology.participation", "0.1"}};
  expect_every_client_alone(with_pfedgraph(alone));
  expect_every_client_alone(with_one_client(with_pfedgraph({{"algorithm.lambda", "0"}})));
}

TEST(PFedGraph, TheTermBeginsWithTheSecondParticipation) {
  const auto world = world_communicator(60);
  const auto models = [&](const std::string& rounds, const std::string& lambda) {
    return run(with_pfedgraph({{"run.rounds", rounds}, {"algorithm.lambda", lambda}}), *world)
        .personal;
  };
  EXPECT_LT(distance(models("1", "5"), models("1", "0")), 1e-13);
  EXPECT_GT(distance(models("2", "5"), models("2", "0")), 1e-3);
}

TEST(PFedGraph, BooksAModelEachWay) { expect_one_model_each_way(with_pfedgraph()); }

TEST(PFedGraph, ResumesAndIsTheSameOnAnyRanks) {
  for (const std::string dtype : {"float64", "float32"}) {
    const Keys keys = with_pfedgraph(with_batch_norm({{"run.dtype", dtype},
                                                      {"run.reproducible", "true"},
                                                      {"run.rounds", "4"},
                                                      {"topology.participation", "0.8"}}));
    expect_same_bits_on_ranks(keys, {keys.at("train.block")});
    expect_goes_on(keys, {2});
  }
}

}  // namespace
}  // namespace fedhpc::testing
