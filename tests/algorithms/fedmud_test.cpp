#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/factor_case.hpp"
#include "fixtures/resumed_run.hpp"
#include "reference/fedmud_reference.hpp"

namespace fedhpc::testing {
namespace {

const std::vector<std::string> kFactorisations{"low_rank",  "low_rank_f",  "low_rank_aad",
                                               "kronecker", "kronecker_f", "kronecker_aad"};

/// Factors that are large enough for their products to matter.
Keys with_fedmud(Keys changes = {}) {
  changes.insert({"algorithm.init_range", "0.7"});
  return with_factors("fedmud", changes);
}

reference::FedMUDSettings settings_of(const Keys& keys) {
  return {.factorisation = factorisation_of(keys, "low_rank", "raw"),
          .range = std::stod(own_value(keys, "init_range", "0.1")),
          .reset_interval = std::stoll(own_value(keys, "reset_interval", "1")),
          .start_from_factors = own_value(keys, "start", "update") == "factors",
          .identity = own_value(keys, "constants", "uniform") == "identity"};
}

reference::FactorOutcome expected_of(const Keys& keys) {
  return reference::fedmud(reference::make_problem(keys), settings_of(keys));
}

std::vector<double> times(const std::vector<double>& values, double factor) {
  std::vector<double> products = values;
  for (double& value : products) value *= factor;
  return products;
}

class FedMUDReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(FedMUDReference, EqualsPlainLoop) {
  const Keys keys = with_fedmud(GetParam().changes);
  const reference::FactorOutcome expected = expected_of(keys);
  ASSERT_GT(expected.layers.size(), 0U);
  const TinyResult result =
      expect_equals_reference(keys, expected.outcome, GetParam().single_bound);
  reference::Problem start = reference::make_problem(keys);
  start.rounds = 0;
  EXPECT_LT(distance(result.initial, reference::fedmud(start, settings_of(keys)).outcome.global),
            1e-12);
  if (world_communicator(60)->rank() != 0) return;
  expect_factor_series(keys, result, expected);
  expect_series(keys, result, "catch_up_bytes", times(expected.catch_up_numbers, 8), 1e-9);
  expect_rows_of_factors(result, expected.row_size, 8, /*more_down=*/8);
}

/// The settings of all methods, with the factorisations in turn.
std::vector<ReferenceCase> settings() {
  std::vector<ReferenceCase> cases = all_cases();
  std::size_t next = 2;
  for (ReferenceCase& one : cases) {
    one.changes["model.factorisation"] = kFactorisations[next++ % kFactorisations.size()];
    one.changes["algorithm.reset_interval"] = std::to_string(1 + next % 3);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Settings, FedMUDReference, ::testing::ValuesIn(settings()), name_of);

/// What concerns the factors, for each factorisation.
std::vector<ReferenceCase> factorisations() {
  std::vector<ReferenceCase> cases;
  for (const std::string& name : kFactorisations) {
    const auto add = [&](const std::string& setting, Keys changes, double bound = 1e-5) {
      changes["model.factorisation"] = name;
      cases.push_back({name + "_" + setting, changes, bound});
    };
    add("plain", {});
    add("wide_blocks", {{"train.block", "3"}, {"algorithm.reset_interval", "2"}});
    add("any_width", {{"train.block", "auto"}, {"model.exclude", "none"}});
    add("some_clients", {{"topology.participation", "0.4"},
                         {"run.rounds", "7"},
                         {"algorithm.reset_interval", "2"},
                         {"topology.edges", "4"}});
    add("from_factors",
        {{"algorithm.start", "factors"}, {"algorithm.reset_interval", "2"}, {"run.rounds", "4"}});
    add("one_reset",
        {{"algorithm.reset_interval", "5"}, {"run.rounds", "6"}, {"model.compression", "4"}});
    add("ranks",
        {{"model.rank", name == "low_rank" ? "2,3" : "4,1"}, {"model.exclude", "fc1,fc4"}});
    add("momentum", {{"train.optimizer", "momentum"},
                     {"train.momentum", "0.5"},
                     {"train.weight_decay", "0.01"},
                     {"algorithm.reset_interval", "2"}});
    add("adam", {{"train.optimizer", "adam"}, {"train.lr", "0.01"}, {"train.block", "3"}},
        kAdamBound);
    add("convolutions", with_batch_norm({{"model.exclude", "none"}}), kBatchNormBound);
    add("convolutions_permuted",
        with_batch_norm({{"model.conv_view", "permuted"},
                         {"algorithm.reset_interval", "2"},
                         {"topology.participation", "0.6"},
                         {"train.block", "4"}}),
        kBatchNormBound);
    add("whole_model", {{"model.compression", "1.5"}, {"model.compression_scope", "model"}});
    if (!name.starts_with("kronecker")) continue;
    add("grid", {{"model.block_layout", "grid"}, {"model.rank", "4"}});
    add("grid_by_compression",
        {{"model.block_layout", "grid"}, {"model.compression", "2.5"}, {"train.block", "3"}});
    add("grid_whole_model",
        with_batch_norm({{"model.block_layout", "grid"},
                         {"model.exclude", "none"},
                         {"model.compression_scope", "model"},
                         {"model.conv_view", "permuted"}}),
        kBatchNormBound);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Factorisations, FedMUDReference, ::testing::ValuesIn(factorisations()),
                         name_of);

INSTANTIATE_TEST_SUITE_P(
    Constants, FedMUDReference,
    ::testing::Values(ReferenceCase{"identity_f",
                                    {{"model.factorisation", "low_rank_f"},
                                     {"algorithm.constants", "identity"}}},
                      ReferenceCase{"identity_aad",
                                    {{"model.factorisation", "low_rank_aad"},
                                     {"algorithm.constants", "identity"}}},
                      ReferenceCase{"identity_aad_convolutions",
                                    with_batch_norm({{"model.factorisation", "low_rank_aad"},
                                                     {"algorithm.constants", "identity"},
                                                     {"model.rank", "20"},
                                                     {"model.exclude", "none"}}),
                                    kBatchNormBound}),
    name_of);

TEST(FedMUD, FromFactorsWithoutResetIsFedLMT) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  for (const std::string view : {"raw", "permuted"}) {
    for (const std::string dtype : {"float64", "float32"}) {
      const Keys shared = with_batch_norm({{"run.dtype", dtype},
                                           {"model.conv_view", view},
                                           {"model.exclude", "first"},
                                           {"algorithm.init_range", "0.6"},
                                           {"topology.participation", "0.6"},
                                           {"train.block", "3"},
                                           {"run.reproducible", "true"}});
      Keys keys = shared;
      keys.insert({{"algorithm.start", "factors"}, {"algorithm.reset_interval", "3"}});
      const TinyResult fedmud = run(with_fedmud(keys), *comm);
      const TinyResult fedlmt = run(with_factors("fedlmt", shared), *comm);
      EXPECT_GT(distance(fedlmt.global, fedlmt.initial), 1e-3);
      EXPECT_TRUE(fedmud.initial.equal(fedlmt.initial)) << view << dtype;
      EXPECT_TRUE(fedmud.global.equal(fedlmt.global))
          << view << dtype << ": " << distance(fedmud.global, fedlmt.global);
    }
  }
}

TEST(FedMUD, UnitConstantsOfFullRankAreFedAvg) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const Keys constants{{"model.factorisation", "low_rank_f"}, {"algorithm.constants", "identity"}};
  // [7, 9] alone with as many columns as it has rows; all four layers with more.
  for (const auto& [exclude, rank] : Keys{{"first,fc3,last", "7"}, {"none", "9"}}) {
    for (const std::string optimizer : {"sgd", "momentum"}) {
      for (const std::string interval : {"1", "2"}) {
        Keys shared{{"train.optimizer", optimizer}, {"topology.participation", "0.6"}};
        if (optimizer == "momentum") shared["train.momentum"] = "0.5";
        Keys keys = shared;
        keys.insert(constants.begin(), constants.end());
        keys.insert({{"model.exclude", exclude},
                     {"model.rank", rank},
                     {"algorithm.reset_interval", interval}});
        const TinyResult fedmud = run(with_fedmud(keys), *comm);
        const TinyResult fedavg = run(with_factors("fedavg", shared), *comm);
        EXPECT_GT(distance(fedavg.global, fedavg.initial), 1e-2);
        EXPECT_LT(distance(fedmud.global, fedavg.global), 1e-12)
            << exclude << ", " << optimizer << ", " << interval;
      }
    }
  }
}

TEST(FedMUD, UnitConstantsOnBothSidesAreFedAvgAtTwiceTheRate) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  for (const std::string view : {"raw", "permuted"}) {
    // conv1 12 x 3, conv2 24 x 12, fc1 4 x 32
    const Keys plain = with_batch_norm(
        {{"model.norm", "none"}, {"model.bias", "false"}, {"topology.participation", "0.6"}});
    Keys keys = plain;
    keys.insert({{"model.factorisation", "low_rank_aad"},
                 {"algorithm.constants", "identity"},
                 {"model.rank", "12,24,32"},
                 {"model.exclude", "none"},
                 {"model.conv_view", view},
                 {"train.lr", "0.05"}});
    const TinyResult fedmud = run(with_fedmud(keys), *comm);
    const TinyResult fedavg = run(with_factors("fedavg", plain), *comm);
    EXPECT_GT(distance(fedavg.global, fedavg.initial), 1e-2);
    EXPECT_LT(distance(fedmud.global, fedavg.global), 1e-12) << view;
  }
}

TEST(FedMUD, FixedFactorsAreAveragedWithoutGap) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  for (const std::string& name : kFactorisations) {
    for (const std::string interval : {"1", "5"}) {
      const Keys keys =
          with_fedmud({{"model.factorisation", name}, {"algorithm.reset_interval", interval}});
      const TinyResult result = run(keys, *comm);
      if (comm->rank() != 0) continue;
      for (const double gap : own_series(keys, result, "aggregation_gap")) {
        if (name.ends_with("_f") || name.ends_with("_aad")) {
          EXPECT_LT(gap, 1e-12) << name;
        } else {
          EXPECT_GT(gap, 1e-6) << name;
        }
      }
    }
  }
}

TEST(FedMUD, TheGapIsOfTheMeanWhateverTheServerMakesOfIt) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  for (const Keys& server : {Keys{{"server.lr", "0.5"}}, Keys{{"server.optimizer", "adam"}}}) {
    Keys keys = with_fedmud({{"model.factorisation", "low_rank_aad"}});
    keys.insert(server.begin(), server.end());
    const TinyResult result = run(keys, *comm);
    if (comm->rank() != 0) continue;
    for (const double gap : own_series(keys, result, "aggregation_gap")) EXPECT_LT(gap, 1e-12);
  }
}

TEST(FedMUD, AResetKeepsTheServersMomentumOfWhatIsTrainedInFull) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const auto bias_after = [&](const std::string& momentum) {
    const Keys keys = with_fedmud({{"algorithm.reset_interval", "1"},
                                   {"run.rounds", "3"},
                                   {"server.optimizer", "momentum"},
                                   {"server.momentum", momentum}});
    return run(keys, *comm).global;
  };
  const Tensor much = bias_after("0.9");
  const Tensor little = bias_after("0.1");
  if (comm->rank() != 0) return;
  EXPECT_GT(distance(much, little), 1e-6);
}

TEST(FedMUD, OneParticipantHasNoGap) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  for (const std::string& name : kFactorisations) {
    const Keys keys = with_fedmud({{"model.factorisation", name},
                                   {"topology.participation", "0.1"},
                                   {"run.rounds", "5"},
                                   {"algorithm.reset_interval", "2"}});
    const TinyResult result = run(keys, *comm);
    if (comm->rank() != 0) continue;
    for (const double gap : own_series(keys, result, "aggregation_gap")) {
      EXPECT_LT(gap, 1e-14) << name;
    }
  }
}

TEST(FedMUD, WhatClientsMissedIsBoundedByTheModel) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const Keys keys = with_fedmud({{"topology.participation", "0.15"},
                                 {"run.rounds", "12"},
                                 {"run.dtype", "float32"},
                                 {"model.rank", "2"}});
  const TinyResult result = run(keys, *comm);
  if (comm->rank() != 0) return;
  // fc2 [7, 9] and fc3 [5, 7]: 4 (2 (16 + 12)) + 8 bytes a push, 4 (63 + 35) at most.
  std::vector<std::int64_t> last(7, 0);
  std::vector<double> expected;
  bool at_most = false;
  for (std::size_t t = 1; t <= result.cohorts.size(); ++t) {
    double sum = 0;
    double clients = 0;
    for (const std::int64_t k : result.cohorts[t - 1]) {
      std::int64_t& before = last[static_cast<std::size_t>(k)];
      // Every round but the first begins with a push.
      const auto missed =
          static_cast<double>(static_cast<std::int64_t>(t) - 1 - std::max<std::int64_t>(before, 1));
      sum += std::min(std::max(missed, 0.0) * (4 * 56 + 8), 4.0 * 98);
      clients += 1;
      at_most = at_most || missed > 1;
      before = static_cast<std::int64_t>(t);
    }
    expected.push_back(sum / clients);
  }
  EXPECT_TRUE(at_most);
  expect_series(keys, result, "catch_up_bytes", expected, 1e-9);
  const std::int64_t row = (8 * 9 + 9) + (2 * 16 + 7) + (2 * 12 + 5) + (5 * 4 + 4);
  expect_rows_of_factors(result, row, 4, /*more_down=*/8);
}

TEST(FedMUD, GoesOnBetweenTwoResets) {
  for (const std::string name : {"low_rank", "kronecker_aad"}) {
    for (const std::string start : {"update", "factors"}) {
      const Keys keys = with_fedmud({{"model.factorisation", name},
                                     {"algorithm.start", start},
                                     {"algorithm.reset_interval", "2"},
                                     {"run.rounds", "6"},
                                     {"topology.participation", "0.5"}});
      expect_goes_on(keys, {1, 2, 3, 4});
    }
  }
}

TEST(FedMUD, SameBitsOnAnyRanksAndWidthsWhenReproducible) {
  for (const std::string& name : kFactorisations) {
    Keys keys = with_fedmud(with_batch_norm({{"run.dtype", "float32"},
                                             {"model.factorisation", name},
                                             {"topology.participation", "0.8"},
                                             {"model.exclude", "none"},
                                             {"run.reproducible", "true"}}));
    expect_same_bits_on_ranks(keys, {"1", "3"});
  }
}

TEST(FedMUD, RefusesWhatDoesNotFit) {
  EXPECT_FALSE(refuses_to_run(with_fedmud()));
  for (const std::string name : {"kronecker", "kronecker_f", "kronecker_aad", "low_rank"}) {
    EXPECT_TRUE(refuses_on_command_line(
        with_fedmud({{"model.factorisation", name}, {"algorithm.constants", "identity"}})))
        << name;
  }
  EXPECT_TRUE(refuses_to_run(with_fedmud({{"model.rank", "2"}, {"model.compression", "3"}})))
      << "rank and rate at one level";
  const Keys grid{{"model.factorisation", "kronecker"}, {"model.block_layout", "grid"}};
  for (const auto& [rank, refused] :
       std::map<std::string, bool>{{"3", true}, {"4,5", true}, {"4", false}, {"4,9", false}}) {
    Keys keys = grid;
    keys["model.rank"] = rank;
    EXPECT_EQ(refuses_to_run(with_fedmud(keys)), refused) << rank;
  }
  // fc1, fc4 and the biases are 117 of 215 numbers.
  EXPECT_TRUE(refuses_to_run(
      with_fedmud({{"model.compression_scope", "model"}, {"model.compression", "4"}})));
  for (const auto& [key, value] : Keys{{"model.factorisation", "hadamard"},
                                       {"model.factorisation ", "cp"},
                                       {"algorithm.reset_interval", "0"},
                                       {"algorithm.init_range", "0"},
                                       {"algorithm.init_range ", "-1"},
                                       {"model.rank", "0"},
                                       {"model.rank ", "2,3,4"}}) {
    Keys keys;
    keys[key.substr(0, key.find(' '))] = value;
    EXPECT_TRUE(refuses_to_run(with_fedmud(keys))) << key << " = " << value;
  }
}

}  // namespace
}  // namespace fedhpc::testing
