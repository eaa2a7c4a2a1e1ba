#include <string>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/reference_case.hpp"
#include "reference/fedavg_reference.hpp"
#include "reference/fedprox_reference.hpp"

namespace fedhpc::testing {
namespace {

Keys with_fedprox(Keys changes, const std::string& mu) {
  changes["algorithm.name"] = "fedprox";
  changes["algorithm.mu"] = mu;
  return tiny_keys(changes);
}

class FedProxReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(FedProxReference, EqualsPlainLoop) {
  const Keys keys = with_fedprox(GetParam().changes, "0.7");
  const reference::Problem problem = reference::make_problem(keys);
  const reference::Outcome expected = reference::fedprox(problem, 0.7);
  ASSERT_GT(distance(expected.global, reference::fedavg(problem).global), 1e-3)
      << "the proximal term matters";
  expect_equals_reference(keys, expected, GetParam().single_bound);
}

INSTANTIATE_TEST_SUITE_P(
    Settings, FedProxReference,
    ::testing::Values(
        ReferenceCase{"epochs", {}}, ReferenceCase{"wide_blocks", {{"train.block", "4"}}},
        ReferenceCase{"full_batch", {{"train.batch_size", "0"}}},
        ReferenceCase{"some_clients_uniform",
                      {{"topology.participation", "0.4"},
                       {"run.rounds", "5"},
                       {"algorithm.weighting", "uniform"}}},
        ReferenceCase{"nesterov", {{"train.optimizer", "nesterov"}, {"train.momentum", "0.9"}}},
        ReferenceCase{"adam", {{"train.optimizer", "adam"}, {"train.lr", "0.01"}}, 1e-3},
        ReferenceCase{"batch_norm", with_batch_norm(), kBatchNormBound}),
    name_of);

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
