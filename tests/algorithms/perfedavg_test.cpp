#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/reference_case.hpp"
#include "fixtures/resumed_run.hpp"
#include "reference/fedavg_reference.hpp"
#include "reference/perfedavg_reference.hpp"

namespace fedhpc::testing {
namespace {

using reference::Curvature;

constexpr double kInnerLr = 0.08;

Keys with_perfedavg(Keys changes) {
  changes.insert(
      {{"algorithm.name", "perfedavg"}, {"algorithm.inner_lr", std::to_string(kInnerLr)}});
  return tiny_keys(changes);
}

reference::PersonalOutcome expected_of(const Keys& keys) {
  const bool hf = keys.contains("algorithm.variant") && keys.at("algorithm.variant") == "hf";
  return reference::perfedavg(reference::make_problem(keys),
                              {.inner_lr = std::stod(keys.at("algorithm.inner_lr")),
                               .curvature = hf ? Curvature::Difference : Curvature::None});
}

class PerFedAvgReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(PerFedAvgReference, EqualsPlainLoop) {
  for (const std::string variant : {"fo", "hf"}) {
    SCOPED_TRACE(variant);
    Keys keys = with_perfedavg(GetParam().changes);
    keys["algorithm.variant"] = variant;
    const reference::PersonalOutcome expected = expected_of(keys);
    const TinyResult result =
        expect_equals_reference(keys, expected.outcome, expected.personal, GetParam());
    EXPECT_GT(distance(result.personal, result.global.repeat({7})), 1e-4) << "nothing adapted";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Settings, PerFedAvgReference,
    ::testing::Values(
        ReferenceCase{"epochs", {}}, ReferenceCase{"wide_blocks", {{"train.block", "4"}}},
        ReferenceCase{"steps", {{"train.local_epochs", "0"}, {"train.local_steps", "6"}}},
        ReferenceCase{"full_batch", {{"train.batch_size", "0"}}},
        ReferenceCase{"some_clients_uniform",
                      {{"topology.participation", "0.4"},
                       {"run.rounds", "5"},
                       {"algorithm.weighting", "uniform"}}},
        ReferenceCase{"clipped", {{"train.clip_norm", "0.1"}, {"train.block", "3"}}},
        ReferenceCase{"nesterov", {{"train.optimizer", "nesterov"}, {"train.momentum", "0.5"}}},
        ReferenceCase{"weight_decay", {{"train.weight_decay", "0.01"}, {"train.block", "3"}}},
        ReferenceCase{"convolutions", with_batch_norm({{"model.norm", "none"}})},
        ReferenceCase{"batch_norm", with_batch_norm({{"train.block", "3"}}), kBatchNormBound},
        ReferenceCase{"batch_norm_weight_decay",
                      with_batch_norm({{"topology.participation", "0.6"},
                                       {"train.weight_decay", "0.01"},
                                       {"train.momentum", "0.5"}}),
                      kBatchNormBound}),
    name_of);

TEST(PerFedAvg, WithoutAdaptationIsFedAvg) {
  const auto world = world_communicator(60);
  const Keys full{{"train.batch_size", "0"}, {"train.local_epochs", "4"}};
  const TinyResult fedavg = run(tiny_keys(full), *world);
  for (const std::string variant : {"fo", "hf"}) {
    Keys keys = with_perfedavg(full);
    keys["algorithm.inner_lr"] = "0";
    keys["algorithm.variant"] = variant;
    const TinyResult result = run(keys, *world);
    EXPECT_LT(distance(result.global, fedavg.global), 1e-12);
    EXPECT_TRUE(result.personal.equal(result.global.repeat({7})));
    if (world->rank() != 0) continue;
    EXPECT_EQ(result.metrics.back().personal_accuracy, fedavg.metrics.back().personal_accuracy);
  }
}

TEST(PerFedAvg, WithoutAdaptationTrainsOnTheBatchesOfDrawOne) {
  Keys keys = with_perfedavg({});
  keys["algorithm.inner_lr"] = "0";
  const reference::Problem problem = reference::make_problem(keys);
  reference::Parameters w = problem.initial;
  for (std::int64_t t = 1; t <= problem.rounds; ++t) {
    reference::Average next;
    for (const std::int64_t k : reference::cohort(problem, t)) {
      next.add(reference::train(problem, k, t, /*pass=*/65536, w, 0).parameters,
               reference::weight_of(problem, k));
    }
    w = next.mean_or(w);
  }
  const TinyResult result = run(keys, *world_communicator(60));
  EXPECT_LT(distance(result.global, reference::flatten(w)), 1e-12);
  EXPECT_GT(distance(result.global, reference::fedavg(problem).global), 1e-4);
}

TEST(PerFedAvg, HessianFreeStepsFollowTheHessian) {
  // Of a model without kinks, whose Hessian is everywhere what differences approach.
  Keys keys = with_perfedavg({{"model.name", "mlr"}, {"algorithm.variant", "hf"}});
  keys.erase("model.hidden");
  const reference::Problem problem = reference::make_problem(keys);
  const auto reference_of = [&](Curvature curvature) {
    return reference::perfedavg(problem, {.inner_lr = kInnerLr, .curvature = curvature})
        .outcome.global;
  };
  const Tensor exact = reference_of(Curvature::Exact);
  const Tensor without = reference_of(Curvature::None);
  const double curvature = without.sub(exact).norm().item<double>();
  EXPECT_GT(curvature / exact.norm().item<double>(), 1e-4) << "nothing to be told apart";

  const auto world = world_communicator(60);
  const auto error = [&](const std::string& delta, const std::string& dtype) {
    Keys these = keys;
    these["algorithm.delta"] = delta;
    these["run.dtype"] = dtype;
    return run(these, *world).global.sub(exact).norm().item<double>() / curvature;
  };
  EXPECT_LT(error("1e-5", "float64"), 1e-8);
  const double wide = error("1e-2", "float64");
  EXPECT_NEAR(error("1e-3", "float64") / wide, 1e-2, 2e-3) << "the error falls as delta^2";
  EXPECT_LT(error("1e-3", "float32"), 2e-3);
}

TEST(PerFedAvg, EvaluationLeavesNoTrace) {
  const auto world = world_communicator(60);
  for (const std::string participation : {"1", "0.4"}) {
    Keys keys = with_perfedavg({{"run.rounds", "6"}, {"topology.participation", participation}});
    const TinyResult often = run(keys, *world);
    keys["run.eval_every"] = "6";
    const TinyResult once = run(keys, *world);
    EXPECT_TRUE(often.global.equal(once.global));
    EXPECT_TRUE(often.personal.equal(once.personal));
    if (world->rank() != 0) continue;
    for (std::size_t t = 0; t < 6; ++t) {
      EXPECT_EQ(often.metrics[t].train_loss, once.metrics[t].train_loss);
      EXPECT_EQ(bytes_up(often.metrics[t]), bytes_up(once.metrics[t]));
      EXPECT_EQ(bytes_down(often.metrics[t]), bytes_down(once.metrics[t]));
    }
    EXPECT_EQ(often.metrics[5].personal_accuracy, once.metrics[5].personal_accuracy);
  }
}

TEST(PerFedAvg, EveryClientAdaptsThatCan) {
  // Client 3 has no training sample, most clients are not drawn.
  const auto world = world_communicator(60);
  const TinyResult result =
      run(with_perfedavg({{"topology.participation", "0.2"}, {"run.rounds", "1"}}), *world);
  const Tensor personal = result.personal.reshape({7, -1});
  for (std::int64_t k = 0; k < 7; ++k) {
    EXPECT_EQ(personal[k].equal(result.global), k == 3) << "client " << k;
  }
}

TEST(PerFedAvg, SameBitsOnAnyRanksAndWidthsWhenReproducible) {
  for (const std::string dtype : {"float64", "float32"}) {
    Keys keys = with_perfedavg({{"run.dtype", dtype},
                                {"algorithm.variant", "hf"},
                                {"topology.participation", "0.8"},
                                {"run.reproducible", "true"}});
    expect_same_bits_on_ranks(keys, {"1", "3", "8"});
  }
}

TEST(PerFedAvg, HessianFreeRunsResume) {
  const Keys keys = with_perfedavg({{"run.rounds", "4"}, {"algorithm.variant", "hf"}});
  expect_goes_on(keys, {2});
}

TEST(PerFedAvg, BatchNormStatisticsAreThoseOfTheFirstBatches) {
  // Where nothing is trained the statistics are what FedAvg finds on the same batches; draws, w_hat
  // and the difference of gradients leave them alone.
  const auto world = world_communicator(60);
  Keys keys = tiny_keys({{"data.name", "hdf5"},
                         {"data.file", tiny_images()},
                         {"data.standardize", "half"},
                         {"model.name", "cnn2"},
                         {"model.width", "0.5"},
                         {"train.local_epochs", "1"},
                         {"train.lr", "0"}});
  keys.erase("model.hidden");
  keys.erase("data.features");
  keys.erase("data.classes");
  const TinyResult fedavg = run(keys, *world);
  EXPECT_GT(distance(fedavg.global, fedavg.initial), 1e-3);
  for (const std::string variant : {"fo", "hf"}) {
    Keys adapted = keys;
    adapted.insert({{"algorithm.name", "perfedavg"}, {"algorithm.variant", variant}});
    const TinyResult result = run(adapted, *world);
    EXPECT_LT(distance(result.global, fedavg.global), 1e-12);
    EXPECT_TRUE(result.personal.isfinite().all().item<bool>());
  }
}

}  // namespace
}  // namespace fedhpc::testing
