#include <string>

#include <gtest/gtest.h>

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/comm/session.hpp"

#include "fixtures/reference_case.hpp"
#include "fixtures/tiny_run.hpp"
#include "reference/fedavg_reference.hpp"

namespace fedhpc::testing {
namespace {

const Keys kPrivate{
    {"privacy.clip", "0.05"}, {"privacy.noise", "0.7"}, {"algorithm.weighting", "uniform"}};

Keys with_privacy(Keys changes) {
  changes.insert(kPrivate.begin(), kPrivate.end());
  return changes;
}

class PrivateFedAvg : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(PrivateFedAvg, EqualsPlainLoop) {
  const Keys keys = tiny_keys(with_privacy(GetParam().changes));
  const reference::Problem problem = reference::make_problem(keys);
  int nobody = 0;
  for (std::int64_t t = 1; t <= problem.rounds && draws_each(problem); ++t) {
    nobody += drawn_each(problem, t).stands_in ? 1 : 0;
  }
  EXPECT_EQ(nobody > 0, GetParam().name == "few_or_nobody" || GetParam().name == "some_away");
  expect_equals_reference(keys, reference::fedavg(problem), GetParam().single_bound);
}

INSTANTIATE_TEST_SUITE_P(
    Settings, PrivateFedAvg,
    ::testing::Values(
        ReferenceCase{"all_clients", {}}, ReferenceCase{"clipped_alone", {{"privacy.noise", "0"}}},
        ReferenceCase{"some_clients", {{"topology.participation", "0.4"}, {"run.rounds", "8"}}},
        ReferenceCase{"few_or_nobody", {{"topology.participation", "0.1"}, {"run.rounds", "8"}}},
        ReferenceCase{"some_away",
                      {{"topology.participation", "0.4"},
                       {"run.rounds", "8"},
                       {"train.stragglers", "0.9,0.7"},
                       {"train.straggler_work", "none"}}},
        ReferenceCase{"wide_blocks", {{"train.block", "4"}, {"topology.participation", "0.6"}}}),
    name_of);

/// Whatever a method makes of the mean, noise that is drawn otherwise makes another model of it.
TEST(PrivateMethods, AllHaveTheNoise) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  for (const std::string& name : algorithm_names()) {
    SCOPED_TRACE(name);
    const bool averages = make_algorithm(name, "a test")->traits().averaged_uploads > 0;
    const Keys keys = tiny_keys_of(name, with_privacy({{"run.rounds", "2"}}));
    if (!averages) {
      EXPECT_TRUE(refuses_on_command_line({{"algorithm.name", name}, {"privacy.clip", "1"}}));
      continue;
    }
    const auto with = [&](const std::string& key, const std::string& value) {
      Keys changed = keys;
      changed[key] = value;
      return run(changed, *comm).global;
    };
    const Tensor once = run(keys, *comm).global;
    EXPECT_GT(distance(with("privacy.noise", "0.8"), once), 1e-6);
    EXPECT_GT(distance(with("privacy.noise", "0"), once), 1e-6);
    EXPECT_TRUE(once.equal(with("privacy.delta", "1e-3"))) << "delta says what the noise gives";
  }
}

TEST(PrivateMethods, AreRefusedWhereMeansAreNotAll) {
  const auto fedavg = [](Keys changes) {
    return refuses_on_command_line(tiny_keys(with_privacy(std::move(changes))));
  };
  EXPECT_FALSE(fedavg({}));
  EXPECT_TRUE(fedavg({{"algorithm.transmit_fraction", "0.5"}}));
  EXPECT_TRUE(refuses_on_command_line(tiny_keys(
      {{"privacy.clip", "1"}, {"privacy.noise", "1"}, {"algorithm.weighting", "samples"}})));
  EXPECT_TRUE(fedavg({{"data.standardize", "pixel"}})) << "means over all clients' samples";
}

TEST(PrivateMethods, SendNoStatistics) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const Keys keys = with_batch_norm(kPrivate);
  EXPECT_THROW(run(tiny_keys(keys), *comm), ConfigError);
  for (const char* name : {"fedbn", "lg_fedavg"}) {
    EXPECT_NO_THROW(run(tiny_keys_of(name, keys), *comm));
  }
  Keys two_layers = tiny_keys_of("lg_fedavg", keys);
  two_layers["algorithm.layers"] = "2";
  EXPECT_THROW(run(two_layers, *comm), ConfigError) << "a norm above travels";
}

}  // namespace
}  // namespace fedhpc::testing
