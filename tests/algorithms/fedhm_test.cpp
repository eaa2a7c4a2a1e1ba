#include <string>

#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/matmul.h>
#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/factor_case.hpp"
#include "reference/fedhm_reference.hpp"

namespace fedhpc::testing {
namespace {

using reference::Parameters;

Keys with_fedhm(const Keys& changes = {}) { return with_factors("fedhm", changes); }

reference::FactorOutcome expected_of(const Keys& keys) {
  return reference::fedhm(reference::make_problem(keys),
                          factorisation_of(keys, "low_rank", "permuted"));
}

class FedHMReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(FedHMReference, EqualsPlainLoop) {
  const Keys keys = with_fedhm(GetParam().changes);
  const reference::FactorOutcome expected = expected_of(keys);
  ASSERT_GT(expected.layers.size(), 0U);
  const TinyResult result =
      expect_equals_reference(keys, expected.outcome, GetParam().single_bound);
  EXPECT_TRUE(result.initial.equal(reference::flatten(reference::make_problem(keys).initial)));
  if (world_communicator(60)->rank() != 0) return;
  expect_series(keys, result, "truncation_error", expected.truncation_error, 1e-9);
  expect_rows_of_factors(result, expected.row_size, 8);
}

INSTANTIATE_TEST_SUITE_P(Settings, FedHMReference, ::testing::ValuesIn(all_cases()), name_of);

INSTANTIATE_TEST_SUITE_P(
    Factors, FedHMReference,
    ::testing::Values(
        ReferenceCase{"any_width", {{"train.block", "auto"}, {"model.exclude", "none"}}},
        ReferenceCase{"ranks", {{"model.rank", "3,1"}, {"model.exclude", "fc1,fc4"}}},
        ReferenceCase{"full_ranks", {{"model.rank", "8,7,5,4"}, {"model.exclude", "none"}}},
        ReferenceCase{"whole_model",
                      {{"model.compression", "1.4"}, {"model.compression_scope", "model"}}},
        ReferenceCase{"convolutions_raw",
                      with_batch_norm({{"model.exclude", "none"}, {"model.conv_view", "raw"}}),
                      kBatchNormBound},
        ReferenceCase{"convolutions_permuted",
                      with_batch_norm({{"model.exclude", "none"}, {"train.block", "3"}}),
                      kBatchNormBound},
        ReferenceCase{"convolutions_of_rank_1",
                      with_batch_norm({{"model.rank", "1"}, {"topology.participation", "0.6"}}),
                      kBatchNormBound}),
    name_of);

/// The square root of a symmetric matrix without negative eigenvalues.
Tensor root(const Tensor& matrix) {
  const auto [values, vectors] = at::linalg_eigh(matrix);
  return at::matmul(vectors.mul(values.clamp_min(0).sqrt()), vectors.t());
}

/// A step on U and V with U V^T = W, U^T U = V^T V, as one on W: U U^T and V V^T are the roots of
/// W W^T and W^T W.
Tensor stepped(const Tensor& w, const Tensor& g, double lr) {
  const Tensor left = at::matmul(root(at::matmul(w, w.t())), g);
  const Tensor right = at::matmul(g, root(at::matmul(w.t(), w)));
  const Tensor both = at::matmul(at::matmul(g, w.t()), g);
  return w.sub(left.add(right), lr).add(both, lr * lr);
}

TEST(FedHM, FullRanksStepOnBalancedFactors) {
  const Keys keys = with_fedhm({{"model.rank", "8,7,5,4"},
                                {"model.exclude", "none"},
                                {"train.batch_size", "0"},
                                {"train.local_epochs", "1"},
                                {"run.rounds", "6"}});
  const reference::Problem problem = reference::make_problem(keys);
  Parameters w = problem.initial;
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    reference::Average mean;
    for (std::size_t k = 0; k < problem.clients.size(); ++k) {
      const auto batches = reference::batches(problem, static_cast<std::int64_t>(k), t, 0);
      if (batches.empty()) continue;
      const Parameters g = reference::training_loss_(problem, w, problem.clients[k], batches[0],
                                                     reference::Statistics::Stay)
                               .gradient;
      Parameters w_k;
      for (std::size_t i = 0; i < w.size(); ++i) {
        w_k.push_back(w[i].dim() == 2 ? stepped(w[i], g[i], problem.lr)
                                      : w[i].sub(g[i], problem.lr));
      }
      mean.add(w_k, reference::weight_of(problem, static_cast<std::int64_t>(k)));
    }
    w = mean.mean_or(w);
  }
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const TinyResult result = run(keys, *comm);
  EXPECT_GT(distance(result.global, result.initial), 1e-2);
  EXPECT_LT(distance(result.global, reference::flatten(w)), 1e-9);
  if (comm->rank() != 0) return;
  for (const double error : own_series(keys, result, "truncation_error")) {
    EXPECT_LT(error, 1e-13);
  }
}

TEST(FedHM, WithoutStepsTruncatesOnce) {
  // The mean of equal products of rank r is one of them.
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const Keys keys = with_fedhm({{"train.lr", "0"}, {"model.rank", "2"}});
  const TinyResult result = run(keys, *comm);
  EXPECT_GT(distance(result.global, result.initial), 1e-2);
  EXPECT_LT(
      distance(run(with_fedhm({{"train.lr", "0"}, {"model.rank", "2"}, {"run.rounds", "1"}}), *comm)
                   .global,
               result.global),
      1e-13);
  if (comm->rank() != 0) return;
  for (const double error : own_series(keys, result, "truncation_error")) {
    EXPECT_LT(error, 1e-13);
  }
}

TEST(FedHM, RefusesWhatDoesNotFit) {
  expect_refuses_other_factors("fedhm", {"kronecker", "hadamard"}, "0.1");
}

}  // namespace
}  // namespace fedhpc::testing
