#include <string>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/reference_case.hpp"
#include "reference/dsgd_reference.hpp"
#include "reference/fedavg_reference.hpp"

namespace fedhpc::testing {
namespace {

using reference::Problem;

Keys with_dsgd(Keys changes = {}) {
  changes.insert({"algorithm.name", "dsgd"});
  return tiny_keys(changes);
}

/// One batch a round, as the paper has it.
Keys with_one_batch(Keys changes = {}) {
  changes.insert({{"train.local_epochs", "0"}, {"train.local_steps", "1"}, {"run.rounds", "6"}});
  return changes;
}

/// The problem of `keys`, with means that are uniform by default.
Problem problem_of(const Keys& keys) {
  Problem problem = reference::make_problem(keys);
  problem.uniform = own_value(keys, "weighting", "uniform") == "uniform";
  return problem;
}

class DsgdReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(DsgdReference, EqualsPlainLoop) {
  const Keys keys = with_dsgd(GetParam().changes);
  const Problem problem = problem_of(keys);
  const TinyResult result =
      expect_equals_reference(keys, reference::dsgd(problem), GetParam().single_bound);
  if (world_communicator(60)->rank() != 0) return;
  for (std::size_t t = 0; t < result.metrics.size(); ++t) {
    const double models = 8 * static_cast<double>(result.cohorts[t].size()) *
                          static_cast<double>(problem.layout->size());
    EXPECT_EQ(bytes_up(result.metrics[t]), models);
    EXPECT_EQ(bytes_down(result.metrics[t]), models);
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, DsgdReference, ::testing::ValuesIn(plain_cases()), name_of);

INSTANTIATE_TEST_SUITE_P(
    OneBatch, DsgdReference,
    ::testing::Values(
        ReferenceCase{"one_batch", with_one_batch()},
        ReferenceCase{"one_batch_wide_blocks", with_one_batch({{"train.block", "4"}})},
        ReferenceCase{"one_batch_some_clients",
                      with_one_batch({{"topology.participation", "0.4"}})},
        ReferenceCase{"one_batch_by_samples", with_one_batch({{"algorithm.weighting", "samples"}})},
        ReferenceCase{"one_batch_mlr", with_one_batch({{"model.name", "mlr"}})}),
    name_of);

/// Settings of as many steps and clients as one likes: what gradients add up to is where a client
/// gets to.
std::vector<Keys> settings() {
  return {{},
          {{"train.batch_size", "0"}, {"train.local_epochs", "1"}},
          {{"algorithm.weighting", "samples"}, {"train.block", "3"}},
          {{"topology.participation", "0.4"}, {"run.rounds", "5"}},
          with_batch_norm({{"topology.participation", "0.6"}, {"train.block", "4"}})};
}

TEST(Dsgd, IsFedAvgOfTheSameWeights) {
  const auto world = world_communicator(60);
  for (Keys changes : settings()) {
    const TinyResult dsgd = run(with_dsgd(changes), *world);
    changes.insert({"algorithm.weighting", "uniform"});
    const TinyResult fedavg = run(tiny_keys(changes), *world);
    EXPECT_GT(distance(fedavg.global, fedavg.initial), 1e-3);
    EXPECT_LT(distance(dsgd.global, fedavg.global), 1e-12);
  }
}

TEST(Dsgd, SoAreTheReferences) {
  for (const Keys& changes : settings()) {
    const Problem problem = problem_of(with_dsgd(changes));
    EXPECT_LT(distance(reference::dsgd(problem).global, reference::fedavg(problem).global), 1e-12);
  }
}

TEST(Dsgd, UploadsMayBeCompressed) {
  const auto world = world_communicator(60);
  const TinyResult exact = run(with_dsgd(), *world);
  const TinyResult half = run(with_dsgd({{"algorithm.codec", "fp16"}}), *world);
  EXPECT_LT(distance(half.global, exact.global), 1e-3);
  EXPECT_FALSE(half.global.equal(exact.global));
  if (world->rank() != 0) return;
  EXPECT_EQ(4 * bytes_up(half.metrics.back()), bytes_up(exact.metrics.back()));
  EXPECT_EQ(bytes_down(half.metrics.back()), bytes_down(exact.metrics.back()));
}

TEST(Dsgd, RefusesAnythingButPlainSteps) {
  EXPECT_FALSE(refuses(with_dsgd()));
  for (const Keys& changes : std::vector<Keys>{{{"train.optimizer", "adam"}},
                                               {{"train.optimizer", "momentum"}},
                                               {{"train.optimizer", "nesterov"}},
                                               {{"train.momentum", "0.5"}},
                                               {{"train.weight_decay", "0.01"}},
                                               {{"train.lr", "0"}}}) {
    EXPECT_TRUE(refuses(with_dsgd(changes)))
        << changes.begin()->first << " = " << changes.begin()->second;
  }
}

}  // namespace
}  // namespace fedhpc::testing
