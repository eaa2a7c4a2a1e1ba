#include <string>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/tiny_run.hpp"
#include "reference/fedprox_reference.hpp"

namespace fedhpc::testing {
namespace {

struct Case {
  std::string name;
  Keys changes;
  double single_bound = 1e-5;  // float32
};

Keys with_fedprox(Keys changes, const std::string& mu) {
  changes["algorithm.name"] = "fedprox";
  changes["algorithm.mu"] = mu;
  return tiny_keys(changes);
}

class FedProxReference : public ::testing::TestWithParam<Case> {};

TEST_P(FedProxReference, EqualsPlainLoop) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const Keys keys = with_fedprox(GetParam().changes, "0.7");
  const reference::Problem problem = reference::make_problem(keys);
  const reference::Outcome expected = reference::fedprox(problem, 0.7);
  ASSERT_GT(distance(expected.global, reference::fedavg(problem).global), 1e-3)
      << "the proximal term matters";

  const TinyResult exact = run(keys, *comm);

  EXPECT_LT(distance(exact.global, expected.global), 1e-9);
  for (std::size_t t = 0; t < expected.train_loss.size(); ++t) {
    // train_loss is the data loss alone.
    EXPECT_NEAR(exact.metrics[t].train_loss, expected.train_loss[t], 1e-12) << "round " << t + 1;
  }
  Keys rounded = keys;
  rounded["run.dtype"] = "float32";
  EXPECT_LT(distance(run(rounded, *comm).global, expected.global), GetParam().single_bound);
}

INSTANTIATE_TEST_SUITE_P(
    Settings, FedProxReference,
    ::testing::Values(Case{"epochs", {}}, Case{"wide_blocks", {{"train.block", "4"}}},
                      Case{"full_batch", {{"train.batch_size", "0"}}},
                      Case{"some_clients_uniform",
                           {{"topology.participation", "0.4"},
                            {"run.rounds", "5"},
                            {"algorithm.weighting", "uniform"}}},
                      Case{"nesterov",
                           {{"train.optimizer", "nesterov"}, {"train.momentum", "0.9"}}},
                      Case{"adam", {{"train.optimizer", "adam"}, {"train.lr", "0.01"}}, 1e-3}),
    [](const auto& one) { return one.param.name; });

TEST(FedProx, WithoutItsTermIsFedAvgBitForBit) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  for (const std::string dtype : {"float32", "float64"}) {
    const Keys changes{{"run.dtype", dtype}};
    EXPECT_TRUE(
        run(with_fedprox(changes, "0"), *comm).global.equal(run(tiny_keys(changes), *comm).global));
  }
}

TEST(FedProx, AStrongTermKeepsClientsNear) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const Keys once{{"run.rounds", "1"}};
  const TinyResult weak = run(with_fedprox(once, "0.1"), *comm);
  const TinyResult strong = run(with_fedprox(once, "9"), *comm);
  EXPECT_LT(distance(strong.global, strong.initial), 0.7 * distance(weak.global, weak.initial));
}

}  // namespace
}  // namespace fedhpc::testing
