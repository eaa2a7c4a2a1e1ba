#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/factor_case.hpp"
#include "reference/ef21p_reference.hpp"

namespace fedhpc::testing {
namespace {

/// So many columns that models move.
Keys with_ef21p(Keys changes = {}) {
  if (!changes.contains("algorithm.columns")) changes.insert({"algorithm.fraction", "0.3"});
  changes.insert({"algorithm.name", "ef21p"});
  return tiny_keys(changes);
}

reference::EF21POutcome expected_of(const Keys& keys) {
  return reference::ef21p(reference::make_problem(keys),
                          {.fraction = std::stod(own_value(keys, "fraction", "0.03125")),
                           .columns = std::stoll(own_value(keys, "columns", "0")),
                           .upload = own_value(keys, "upload", "rand_k"),
                           .scale = own_value(keys, "scale", "false") == "true",
                           .server_lr = std::stod(own_value(keys, "server_lr", "1"))});
}

class EF21PReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(EF21PReference, EqualsPlainLoop) {
  const Keys keys = with_ef21p(GetParam().changes);
  const reference::EF21POutcome expected = expected_of(keys);
  const TinyResult result =
      expect_equals_reference(keys, expected.outcome, GetParam().single_bound);
  if (world_communicator(60)->rank() != 0) return;
  expect_series(keys, result, "catch_up_bytes", expected.catch_up, 1e-9);
  for (const RoundMetrics& metrics : result.metrics) {
    EXPECT_EQ(metrics.bytes_up_client_cloud, metrics.participants * expected.bytes_up);
    EXPECT_EQ(metrics.bytes_down_client_cloud, metrics.participants * expected.bytes_down);
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, EF21PReference, ::testing::ValuesIn(all_cases()), name_of);

INSTANTIATE_TEST_SUITE_P(
    Compressors, EF21PReference,
    ::testing::Values(
        ReferenceCase{"top_k", {{"algorithm.upload", "top_k"}, {"train.block", "3"}}},
        ReferenceCase{"top_k_some_clients",
                      {{"algorithm.upload", "top_k"},
                       {"topology.participation", "0.4"},
                       {"run.rounds", "7"}}},
        ReferenceCase{"dense_up", {{"algorithm.upload", "dense"}}},
        ReferenceCase{"scaled", {{"algorithm.scale", "true"}, {"algorithm.fraction", "0.6"}}},
        ReferenceCase{"server_lr", {{"algorithm.server_lr", "2.5"}, {"run.rounds", "5"}}},
        ReferenceCase{"few_columns", {{"algorithm.columns", "2"}, {"run.rounds", "6"}}},
        ReferenceCase{"all_but_one_column", {{"algorithm.columns", "81"}}},
        ReferenceCase{"batch_norm_scaled",
                      with_batch_norm({{"algorithm.scale", "true"},
                                       {"algorithm.fraction", "0.5"},
                                       {"algorithm.server_lr", "0.7"},
                                       {"topology.participation", "0.6"}}),
                      kBatchNormBound}),
    name_of);

TEST(EF21P, WithAllColumnsIsFedAvg) {
  const auto world = world_communicator(60);
  const Keys by_count{{"algorithm.columns", "82"}};
  const Keys by_share{{"algorithm.fraction", "1"}};
  const Keys largest{{"algorithm.fraction", "1"}, {"algorithm.upload", "top_k"}};
  const Keys some{{"topology.participation", "0.4"}, {"run.rounds", "6"}};
  const Keys images = with_batch_norm({{"train.momentum", "0.5"}, {"train.block", "3"}});
  for (const auto& [own, setting] :
       {std::pair{by_share, Keys{}}, std::pair{by_share, some}, std::pair{by_count, some},
        std::pair{largest, some}, std::pair{by_share, images}}) {
    const TinyResult fedavg = run(tiny_keys(setting), *world);
    Keys all = setting;
    all.insert(own.begin(), own.end());
    const TinyResult ef21p = run(with_ef21p(all), *world);
    EXPECT_LT(distance(ef21p.global, fedavg.global), 1e-12);
    if (world->rank() != 0) continue;
    EXPECT_EQ(bytes_up(ef21p.metrics.back()), bytes_up(fedavg.metrics.back()));
    EXPECT_EQ(bytes_down(ef21p.metrics.back()), bytes_down(fedavg.metrics.back()));
  }
}

TEST(EF21P, RefusesMoreColumnsThanThereAre) {
  EXPECT_TRUE(refuses_to_run(with_ef21p({{"algorithm.columns", "83"}})));
  EXPECT_FALSE(refuses_to_run(with_ef21p({{"algorithm.columns", "82"}})));
}

TEST(EF21P, RefusesKeysThatDoNotAct) {
  EXPECT_TRUE(refuses_on_command_line(
      with_ef21p({{"algorithm.scale", "true"}, {"algorithm.upload", "top_k"}})));
  EXPECT_TRUE(refuses_on_command_line(
      with_ef21p({{"algorithm.columns", "5"}, {"algorithm.fraction", "0.5"}})));
  EXPECT_FALSE(refuses_on_command_line(with_ef21p({{"algorithm.scale", "true"}})));
}

}  // namespace
}  // namespace fedhpc::testing
