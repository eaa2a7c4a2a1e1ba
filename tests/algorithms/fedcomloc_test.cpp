#include <algorithm>
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/factor_case.hpp"
#include "fixtures/resumed_run.hpp"
#include "reference/fedavg_reference.hpp"
#include "reference/fedcomloc_reference.hpp"

namespace fedhpc::testing {
namespace {

Keys with_fedcomloc(Keys changes = {}) {
  changes.insert({"algorithm.probability", "0.3"});
  return tiny_keys_of("fedcomloc", changes);
}

reference::FedComLocOutcome fedcomloc_of(const Keys& keys) {
  reference::Problem problem = reference::make_problem(keys);
  problem.uniform = own_value(keys, "weighting", "uniform") == "uniform";
  return reference::fedcomloc(problem,
                              {.p = std::stod(own_value(keys, "probability", "0.1")),
                               .compress = own_value(keys, "compress", "com"),
                               .codec = own_value(keys, "codec", "dense"),
                               .fraction = std::stod(own_value(keys, "codec_fraction", "0.01")),
                               .levels = std::stol(own_value(keys, "codec_levels", "7"))});
}

/// Keys of a compressor that leaves something standing of a model.
Keys compressed(const std::string& where, const std::string& codec, Keys changes = {}) {
  changes.insert({{"algorithm.compress", where}, {"algorithm.codec", codec}});
  if (codec == "top_k") changes.insert({"algorithm.codec_fraction", "0.6"});
  if (codec == "qsgd") changes.insert({"algorithm.codec_levels", "16"});
  return changes;
}

class FedComLocReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(FedComLocReference, EqualsPlainLoop) {
  const Keys keys = with_fedcomloc(GetParam().changes);
  const reference::FedComLocOutcome expected = fedcomloc_of(keys);
  ASSERT_GT(std::ranges::max(expected.steps), std::ranges::min(expected.steps)) << "coins matter";
  expect_equals_reference(keys, expected.outcome, GetParam().single_bound);
  if (!keys.contains("algorithm.codec")) return;
  Keys plain = keys;
  plain["algorithm.codec"] = "dense";
  EXPECT_GT(distance(expected.outcome.global, fedcomloc_of(plain).outcome.global), 1e-2)
      << "compression matters";
}

std::vector<ReferenceCase> settings() {
  std::vector<ReferenceCase> cases;
  for (ReferenceCase one : plain_cases()) {
    one.single_bound = std::max(one.single_bound, 1e-4);
    if (!one.changes.contains("run.rounds")) one.changes["run.rounds"] = "4";
    cases.push_back(one);
  }
  cases.push_back({"falling_rate", with_falling_lr("round", {{"run.rounds", "4"}}), 1e-4});
  for (const std::string where : {"com", "local", "global"}) {
    for (const std::string codec : {"top_k", "qsgd"}) {
      cases.push_back(
          {where + "_" + codec,
           compressed(where, codec, {{"topology.participation", "0.6"}, {"run.rounds", "6"}}),
           1e-4});
    }
    cases.push_back({where + "_batch_norm",
                     with_batch_norm(compressed(where, "top_k", {{"train.block", "4"}})), 1e-3});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Settings, FedComLocReference, ::testing::ValuesIn(settings()), name_of);

TEST(FedComLoc, OneStepARoundIsGradientDescent) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  Keys changes{{"run.rounds", "6"}, {"algorithm.weighting", "uniform"}};
  const Keys one_step{{"train.local_epochs", "0"}, {"train.local_steps", "1"}};
  Keys fedsgd = tiny_keys(changes);
  for (const auto& [key, value] : one_step) fedsgd[key] = value;
  changes["algorithm.probability"] = "1";
  EXPECT_LT(distance(run(with_fedcomloc(changes), *comm).global, run(fedsgd, *comm).global), 1e-12);
}

TEST(FedComLoc, FirstRoundIsFedAvg) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  Keys changes{{"run.rounds", "1"}, {"run.seed", "8"}, {"algorithm.weighting", "samples"}};
  const Keys keys = with_fedcomloc(changes);
  const std::int64_t steps = fedcomloc_of(keys).steps.front();
  ASSERT_GT(steps, 1);
  changes.insert({{"train.local_epochs", "0"}, {"train.local_steps", std::to_string(steps)}});
  EXPECT_LT(distance(run(keys, *comm).global, run(tiny_keys(changes), *comm).global), 1e-12)
      << "all control variates are 0";
}

TEST(FedComLoc, ControlVariatesSumToZeroWhereAllTakePart) {
  for (const std::string where : {"com", "local", "global"}) {
    const reference::FedComLocOutcome of =
        fedcomloc_of(with_fedcomloc(compressed(where, "top_k", {{"run.rounds", "5"}})));
    Tensor sum = reference::flatten(of.controls.front());
    const double one = sum.norm().item<double>();
    for (std::size_t k = 1; k < of.controls.size(); ++k) {
      sum = sum.add(reference::flatten(of.controls[k]));
    }
    ASSERT_GT(one, 1e-2);
    if (where == "global") {
      EXPECT_GT(sum.norm().item<double>(), 1e-2 * one);
    } else {
      EXPECT_LT(sum.norm().item<double>(), 1e-12) << where;
    }
  }
}

TEST(FedComLoc, SendsEachModelOnceToWhoNeedsIt) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  for (const std::string participation : {"0.4", "1"}) {
    const Keys keys =
        with_fedcomloc({{"topology.participation", participation}, {"run.rounds", "5"}});
    const TinyResult result = run(keys, *comm);
    if (comm->rank() != 0) continue;
    const reference::FedComLocOutcome expected = fedcomloc_of(keys);
    const auto payload = static_cast<double>(result.global.nbytes());
    const std::vector<double> steps = own_series(keys, result, "local_steps");
    for (std::size_t t = 0; t < result.metrics.size(); ++t) {
      EXPECT_EQ(bytes_down(result.metrics[t]), payload * static_cast<double>(expected.sends[t]));
      EXPECT_EQ(bytes_up(result.metrics[t]),
                payload * static_cast<double>(result.cohorts[t].size()));
      EXPECT_EQ(steps[t], static_cast<double>(expected.steps[t]));
    }
  }
}

TEST(FedComLoc, CompressesOneDirection) {
  // 82 columns of 64 bits; of 49 of them places of 7 bits.
  constexpr double kFull = 82 * 8;
  constexpr double kCompressed = (49 * 7 + 7) / 8 + 49 * 8;
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  for (const std::string where : {"com", "local", "global"}) {
    const TinyResult result = run(with_fedcomloc(compressed(where, "top_k")), *comm);
    if (comm->rank() != 0) continue;
    for (std::size_t t = 0; t < result.metrics.size(); ++t) {
      const double down = where == "global" && t > 0 ? kCompressed : kFull;
      EXPECT_EQ(bytes_up(result.metrics[t]), 7 * (where == "com" ? kCompressed : kFull)) << where;
      EXPECT_EQ(bytes_down(result.metrics[t]), 7 * down) << where;
    }
    const std::int64_t zeros = 82 - result.global.count_nonzero().item<std::int64_t>();
    EXPECT_EQ(zeros == 82 - 49, where == "global") << where << ' ' << zeros;
  }
}

TEST(FedComLoc, GoesOnAfterAnyRound) {
  for (const std::string where : {"com", "local", "global"}) {
    const Keys keys = with_fedcomloc(
        compressed(where, "qsgd", {{"run.rounds", "4"}, {"topology.participation", "0.5"}}));
    expect_goes_on(keys, {1, 3});
  }
}

TEST(FedComLoc, SameBitsOnAnyRanksAndWidthsWhenReproducible) {
  for (const std::string where : {"com", "local", "global"}) {
    Keys keys =
        with_fedcomloc(with_batch_norm(compressed(where, where == "local" ? "qsgd" : "top_k",
                                                  {{"run.dtype", "float32"},
                                                   {"topology.participation", "0.8"},
                                                   {"run.reproducible", "true"}})));
    expect_same_bits_on_ranks(keys, {"1", "3"});
  }
}

TEST(FedComLoc, RefusesWhatDoesNotFit) {
  EXPECT_FALSE(refuses(with_fedcomloc()));
  const std::vector<std::pair<std::string, std::string>> unfit{{"train.optimizer", "adam"},
                                                               {"train.momentum", "0.5"},
                                                               {"train.lr", "0"},
                                                               {"train.local_steps", "5"},
                                                               {"algorithm.probability", "0"},
                                                               {"algorithm.probability", "1.5"},
                                                               {"algorithm.compress", "com"}};
  for (const auto& [key, value] : unfit) {
    Keys keys = with_fedcomloc();
    keys[key] = value;
    EXPECT_TRUE(refuses_on_command_line(keys)) << key;
  }
}

}  // namespace
}  // namespace fedhpc::testing
