#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"
#include "fedhpc/engine/experiment.hpp"

#include "fixtures/reference_case.hpp"
#include "fixtures/resumed_run.hpp"
#include "reference/own_statistics_reference.hpp"

// train.buffers = local: batch norm's running statistics stay with the clients.
namespace fedhpc::testing {
namespace {

using reference::OwnStatisticsOutcome;

Keys keys_of(const std::string& algorithm, Keys changes = {}) {
  changes.insert({{"algorithm.name", algorithm}, {"train.buffers", "local"}});
  return tiny_keys(with_batch_norm(changes));
}

/// The share of all clients' test samples that each one's row of the models puts into the right
/// class.
double pooled_accuracy(const Keys& keys, const std::vector<reference::Parameters>& models) {
  const reference::Problem problem = reference::make_problem(keys);
  double correct = 0;
  double samples = 0;
  for (std::size_t k = 0; k < models.size(); ++k) {
    correct += reference::correct(problem, models[k], problem.tests[k]);
    samples += static_cast<double>(problem.tests[k].labels.size(0));
  }
  return correct / samples;
}

TinyResult expect_equals(const Keys& keys, const OwnStatisticsOutcome& expected) {
  TinyResult result = expect_equals_reference(keys, expected.outcome, kBatchNormBound);
  if (world_communicator(60)->rank() == 0) {
    EXPECT_NEAR(result.metrics.back().global_accuracy, pooled_accuracy(keys, expected.received),
                1e-12);
  }
  return result;
}

class OwnStatistics : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(OwnStatistics, OfFedAvgEqualPlainLoop) {
  const Keys keys = keys_of("fedavg", GetParam().changes);
  expect_equals(keys, reference::fedavg_with_own_statistics(reference::make_problem(keys)));
}

TEST_P(OwnStatistics, OfDittoEqualPlainLoop) {
  const Keys keys = keys_of("ditto", GetParam().changes);
  const OwnStatisticsOutcome expected =
      reference::ditto_with_own_statistics(reference::make_problem(keys), 0.1);
  Keys these = keys;
  these["algorithm.mu"] = "0.1";
  const TinyResult result = expect_equals(these, expected);
  EXPECT_LT(distance(result.personal, flatten_all(expected.personal)), 1e-9);
}

TEST_P(OwnStatistics, OfFedRepEqualPlainLoop) {
  const Keys keys = keys_of("fedrep", GetParam().changes);
  const OwnStatisticsOutcome expected =
      reference::fedrep_with_own_statistics(reference::make_problem(keys));
  const TinyResult result = run(keys, *world_communicator(60));
  EXPECT_LT(distance(result.personal, flatten_all(expected.personal)), 1e-9);
  expect_personal_accuracy(keys, result, expected.personal);
}

INSTANTIATE_TEST_SUITE_P(Settings, OwnStatistics,
                         ::testing::Values(ReferenceCase{"all_clients", {}},
                                           ReferenceCase{"some_clients",
                                                         {{"topology.participation", "0.5"},
                                                          {"run.rounds", "5"},
                                                          {"train.block", "3"}}}),
                         name_of);

TEST(OwnStatisticsOfClients, DoNotTravel) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const Keys keys = keys_of("fedavg", {{"run.dtype", "float32"}});
  const TinyResult local = run(keys, *comm);
  Keys others = keys;
  others["train.buffers"] = "average";
  const TinyResult average = run(others, *comm);
  if (comm->rank() != 0) return;
  const std::int64_t statistics = reference::make_problem(keys).layout->count(Tag::Buffer);
  const double saved = 7 * 4 * static_cast<double>(statistics);
  for (std::size_t t = 0; t < local.metrics.size(); ++t) {
    EXPECT_EQ(bytes_up(local.metrics[t]), bytes_up(average.metrics[t]) - saved);
    EXPECT_EQ(bytes_down(local.metrics[t]), bytes_down(average.metrics[t]) - saved);
  }
}

TEST(OwnStatisticsOfClients, AreInCheckpoints) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  for (const std::string algorithm : {"fedavg", "fedala"}) {
    const Keys keys = keys_of(algorithm, {{"topology.participation", "0.5"}, {"run.rounds", "5"}});
    const TinyResult whole = run(keys, *comm);
    const TinyResult parts = run_in_two_parts(keys, 3, *comm, *comm);
    expect_same_bits(parts, whole, *comm);
  }
}

bool key_acts(const Keys& keys) {
  const Config config(assignments_of(keys), "tiny.ini");
  return config.options().acts(config.options().entry("train.buffers"));
}

TEST(OwnStatisticsOfClients, NeedBatchNormAndSomethingThatIsAveraged) {
  EXPECT_TRUE(key_acts(keys_of("fedavg")));
  EXPECT_FALSE(key_acts(keys_of("fedavg", {{"model.norm", "none"}})));
  EXPECT_FALSE(key_acts(keys_of("fedavg", {{"algorithm.transmit_fraction", "0.5"}})));
  EXPECT_FALSE(key_acts(keys_of("fedavg", {{"data.split", "official"}})));
  EXPECT_FALSE(key_acts(keys_of("localonly")));
  EXPECT_FALSE(key_acts(keys_of("pfedsop")));
  const Keys without = tiny_keys({{"train.buffers", "local"}});
  EXPECT_FALSE(key_acts(without));
  EXPECT_EQ(run(without, *world_communicator(60)).metrics.size(), 3U);
}

}  // namespace
}  // namespace fedhpc::testing
