#include <string>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"

#include "fixtures/factor_case.hpp"
#include "fixtures/resumed_run.hpp"
#include "reference/fedavg_reference.hpp"
#include "reference/server_reference.hpp"

namespace fedhpc::testing {
namespace {

/// A rule at a rate at which it moves about as much as FedAvg does.
Keys with_server(const std::string& optimizer, Keys changes = {}) {
  changes["server.optimizer"] = optimizer;
  if (optimizer != "sgd" && optimizer != "momentum") {
    changes.insert({{"server.lr", "0.03"}, {"server.eps", "0.02"}});
  }
  return changes;
}

reference::ServerSettings settings_of(const Keys& keys) {
  const reference::ServerSettings defaults;
  const auto number = [&](const std::string& key, double otherwise) {
    return std::stod(value_or(keys, "server." + key, std::to_string(otherwise)));
  };
  return {.optimizer = value_or(keys, "server.optimizer", "sgd"),
          .lr = number("lr", defaults.lr),
          .momentum = number("momentum", defaults.momentum),
          .beta1 = number("beta1", defaults.beta1),
          .beta2 = number("beta2", defaults.beta2),
          .tau = number("eps", defaults.tau)};
}

class ServerReference : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(ServerReference, EqualsPlainLoop) {
  const Keys keys = tiny_keys(GetParam().changes);
  const reference::Problem problem = reference::make_problem(keys);
  const bool proximal = value_or(keys, "algorithm.name", "fedavg") == "fedprox";
  const reference::Outcome expected =
      reference::fedopt(problem, settings_of(keys), proximal ? 0.7 : 0);
  ASSERT_GT(distance(expected.global, reference::fedavg(problem).global), 1e-3)
      << "the server's rule matters";
  expect_equals_reference(keys, expected, GetParam().single_bound);
}

std::vector<ReferenceCase> settings() {
  std::vector<ReferenceCase> cases;
  for (const std::string rule : {"sgd", "momentum", "adagrad", "adam", "yogi"}) {
    const auto add = [&](const std::string& name, Keys changes, double bound = 1e-4) {
      if (rule == "sgd") changes["server.lr"] = "0.6";
      cases.push_back({rule + "_" + name, with_server(rule, std::move(changes)), bound});
    };
    add("epochs", {});
    add("some_clients", {{"topology.participation", "0.4"},
                         {"run.rounds", "6"},
                         {"algorithm.weighting", "uniform"},
                         {"train.block", "4"}});
    add("proximal", {{"algorithm.name", "fedprox"}, {"algorithm.mu", "0.7"}});
    add("batch_norm", with_batch_norm({{"train.block", "3"}}), 1e-3);
  }
  cases.push_back({"half_momentum", with_server("momentum", {{"server.momentum", "0.5"}})});
  cases.push_back(
      {"other_betas",
       with_server("adam", {{"server.beta1", "0"}, {"server.beta2", "0.5"}, {"run.rounds", "6"}}),
       1e-4});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Settings, ServerReference, ::testing::ValuesIn(settings()), name_of);

std::vector<std::string> methods_with_server() {
  std::vector<std::string> names;
  for (const std::string& name : algorithm_names()) {
    if (has_key(name, "server.lr")) names.push_back(name);
  }
  return names;
}

TEST(ServerOptimizer, MomentumOfZeroIsTheDefaultToTheLastBit) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  ASSERT_GT(methods_with_server().size(), 10U);
  for (const std::string& name : methods_with_server()) {
    const Keys changes{{"run.rounds", "2"}, {"run.dtype", "float32"}};
    Keys none = changes;
    none.insert({{"server.optimizer", "momentum"}, {"server.momentum", "0"}});
    SCOPED_TRACE(name);
    expect_same_bits(run(tiny_keys_of(name, none), *comm), run(tiny_keys_of(name, changes), *comm),
                     *comm);
  }
}

TEST(ServerOptimizer, MovesEveryMethodThatHasIt) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  for (const std::string& name : methods_with_server()) {
    const auto end = [&](Keys changes) {
      changes["run.rounds"] = "2";
      return run(tiny_keys_of(name, std::move(changes)), *comm).global;
    };
    const Tensor plain = end({});
    EXPECT_GT(distance(end(with_server("adam")), plain), 1e-4) << name;
    EXPECT_GT(distance(end({{"server.lr", "0.5"}}), plain), 1e-4) << name;
  }
}

TEST(ServerOptimizer, ModelsStayAtARateOfZero) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  for (const std::string name : {"fedavg", "fedprox", "hierfavg", "ditto", "fedhm"}) {
    for (const std::string rule : {"sgd", "adam"}) {
      const TinyResult result =
          run(tiny_keys_of(name, {{"server.lr", "0"}, {"server.optimizer", rule}}), *comm);
      EXPECT_TRUE(result.global.equal(result.initial)) << name << rule;
    }
  }
}

TEST(ServerOptimizer, TheCloudOfOneEdgeStepsAsTheServerWithoutEdges) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  for (const std::string rule : {"momentum", "adagrad", "adam", "yogi"}) {
    Keys edge = with_server(rule, {{"topology.participation", "0.4"}, {"run.rounds", "4"}});
    const Tensor expected = run(tiny_keys(edge), *comm).global;
    edge.insert(
        {{"algorithm.name", "hierfavg"}, {"topology.edges", "1"}, {"algorithm.edge_rounds", "1"}});
    EXPECT_LT(distance(run(tiny_keys(edge), *comm).global, expected), 1e-10) << rule;
  }
}

TEST(ServerOptimizer, StartsAnewWithNewFactorsAndGoesOnWithWhatIsTrainedInFull) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const auto fedmud = [&](const std::string& interval, const std::string& momentum) {
    Keys keys = with_server("momentum", {{"algorithm.start", "factors"}, {"run.rounds", "2"}});
    keys.insert({{"algorithm.reset_interval", interval}, {"server.momentum", momentum}});
    return run(with_factors("fedmud", keys), *comm).global;
  };
  // After the second round weights have two steps of factors of their own, biases momentum.
  const Tensor same = fedmud("1", "0.9").eq(fedmud("1", "0"));
  EXPECT_GT(same.sum().item<double>(), 0.4 * static_cast<double>(same.numel()));
  EXPECT_FALSE(same.all().item<bool>());
  EXPECT_GT(distance(fedmud("2", "0.9"), fedmud("2", "0")), 1e-4);
}

TEST(ServerOptimizer, GoesOnAfterAnyRound) {
  for (const std::string name : {"fedavg", "fedrep", "hierfavg", "fedlmt"}) {
    for (const std::string rule : {"momentum", "adagrad", "adam", "yogi"}) {
      const Keys keys = tiny_keys_of(
          name, with_server(rule, {{"run.rounds", "4"}, {"topology.participation", "0.5"}}));
      SCOPED_TRACE(name + " " + rule);
      expect_goes_on(keys, {2});
    }
  }
}

TEST(ServerOptimizer, SameBitsOnAnyRanksAndWidthsWhenReproducible) {
  for (const std::string rule : {"sgd", "momentum", "adagrad", "adam", "yogi"}) {
    Keys keys = tiny_keys(with_server(rule, with_batch_norm({{"run.dtype", "float32"},
                                                             {"topology.participation", "0.8"},
                                                             {"run.reproducible", "true"}})));
    expect_same_bits_on_ranks(keys, {"1", "3"});
  }
}

TEST(ServerOptimizer, RefusesWhatDoesNotFit) {
  EXPECT_FALSE(refuses(tiny_keys(with_server("adam"))));
  for (const std::string& name : algorithm_names()) {
    EXPECT_EQ(refuses_on_command_line(tiny_keys_of(name, {{"server.lr", "0.5"}})),
              !has_key(name, "server.lr"))
        << name;
  }
  for (const auto& [key, value] : Keys{{"server.optimizer", "lion"},
                                       {"server.lr", "-1"},
                                       {"server.momentum", "1"},
                                       {"server.beta1", "1"},
                                       {"server.beta2", "-0.1"},
                                       {"server.eps", "0"}}) {
    EXPECT_TRUE(refuses(tiny_keys({{key, value}}))) << key;
  }
  for (const auto& [key, value] :
       Keys{{"server.momentum", "0.5"}, {"server.beta2", "0.5"}, {"server.eps", "0.1"}}) {
    EXPECT_TRUE(refuses_on_command_line(tiny_keys({{key, value}}))) << key << " without a rule";
  }
  EXPECT_TRUE(refuses_on_command_line(
      tiny_keys({{"server.lr", "0.5"}, {"algorithm.transmit_fraction", "0.5"}})));
}

}  // namespace
}  // namespace fedhpc::testing
