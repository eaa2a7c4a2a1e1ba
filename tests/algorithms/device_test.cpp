#include "fixtures/device.hpp"

#include <cmath>
#include <string>
#include <vector>

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "fedhpc/core/error.hpp"
#include "fedhpc/io/hdf5.hpp"

#include "data/data_support.hpp"
#include "fixtures/tiny_run.hpp"

// What algorithms can be told to do beside their defaults, on a device as on the host.
namespace fedhpc::testing {
namespace {

struct Variant {
  std::string algorithm;
  std::string name;
  Keys changes;
};

std::vector<Variant> variants() {
  std::vector<Variant> all{
      {"fedavg", "keep", {{"algorithm.transmit_fraction", "0.3"}}},
      {"fedavg", "zero", {{"algorithm.transmit_fraction", "0.3"}, {"algorithm.unsent", "zero"}}},
      {"fedavg",
       "rescale",
       {{"algorithm.transmit_fraction", "0.3"}, {"algorithm.unsent", "rescale"}}},
      {"perfedavg", "hf", {{"algorithm.variant", "hf"}, {"algorithm.delta", "0.01"}}},
      {"perfedavg",
       "hf_adam",
       {{"algorithm.variant", "hf"}, {"algorithm.delta", "0.01"}, {"train.optimizer", "adam"}}},
      {"pfedme",
       "step_local",
       {{"algorithm.restart", "step"}, {"algorithm.evaluate", "local"}, {"algorithm.beta", "0.5"}}},
      {"pfedsop",
       "before",
       {{"algorithm.persist", "before"}, {"algorithm.evaluate", "after"}, {"train.block", "3"}}},
      {"pfedsop", "alone", {{"algorithm.personalise", "false"}}},
      {"pfedsop", "beta", {{"algorithm.beta_override", "0.3"}, {"algorithm.personal_lr", "0.5"}}},
      {"ef21p", "top_k", {{"algorithm.upload", "top_k"}, {"algorithm.server_lr", "2"}}},
      {"ef21p", "scaled", {{"algorithm.scale", "true"}, {"algorithm.fraction", "0.5"}}},
      {"fedcomloc", "local", {{"algorithm.compress", "local"}, {"algorithm.codec", "bf16"}}},
      {"pfedgraph",
       "received",
       {{"algorithm.evaluate", "received"},
        {"algorithm.alpha", "0.3"},
        {"algorithm.lambda", "-0.5"},
        {"train.momentum", "0.5"}}},
      {"feddecomp", "momentum", {{"model.rank", "2"}, {"train.momentum", "0.5"}}},
      {"fedbat", "binary", {{"algorithm.download", "binary"}, {"train.block", "3"}}},
      {"pfedgp", "log", {{"algorithm.averaging", "log"}, {"algorithm.clip", "0.1"}}},
      {"pfedgp",
       "points",
       {{"algorithm.inducing_points", "3"},
        {"algorithm.inducing_deviation", "0.5"},
        {"train.optimizer", "momentum"}}},
      {"fedala",
       "two_layers",
       {{"algorithm.layers", "2"}, {"algorithm.share", "0.7"}, {"algorithm.weight_lr", "1"}}},
      {"tdpfed", "act", {{"algorithm.aggregate", "act"}, {"algorithm.broadcast", "tensor"}}},
      {"tdpfed", "fit", {{"algorithm.factor_solver", "fit"}}},
      {"sfedhp",
       "schedule",
       {{"algorithm.restart", "round"},
        {"algorithm.gamma_schedule", "either"},
        {"algorithm.accuracy", "0.001"}}},
      {"sfedhp", "bitmap", {{"algorithm.codec", "bitmap"}}},
      {"simnet", "drawn_together", {{"algorithm.gamma", "0.05"}, {"algorithm.personal", "all"}}},
      {"simnet", "over_all", {{"algorithm.shared", "all"}, {"algorithm.p", "1"}}},
      {"simnet",
       "largest",
       {{"algorithm.personal", "all"}, {"algorithm.p", "infinity"}, {"algorithm.lambda", "0.05"}}},
      {"simnet",
       "tolerance",
       {{"algorithm.personal", "all"},
        {"algorithm.lambda", "0.05"},
        {"algorithm.admm_steps", "30"},
        {"algorithm.admm_tolerance", "0.01"}}},
      {"fedmud",
       "identity",
       {{"model.factorisation", "low_rank_aad"},
        {"algorithm.constants", "identity"},
        {"algorithm.reset_interval", "2"}}},
  };
  for (const std::string name : {"data", "feature", "model"}) {
    all.push_back({"simnet",
                   "graph_" + name,
                   {{"algorithm.graph", name},
                    {"algorithm.neighbours", "2"},
                    {"algorithm.edge_weights", "gaussian"},
                    {"algorithm.lambda", "0.05"}}});
  }
  for (const std::string name :
       {"low_rank", "low_rank_f", "low_rank_aad", "kronecker", "kronecker_f", "kronecker_aad"}) {
    all.push_back({"fedmud",
                   name,
                   {{"model.factorisation", name},
                    {"algorithm.reset_interval", "2"},
                    {"train.optimizer", "momentum"}}});
  }
  for (const std::string codec :
       {"dense32", "fp16", "bf16", "bitmap", "index_value", "run_length", "kmeans"}) {
    for (const std::string algorithm : {"fedavg", "hierfavg"}) {
      all.push_back({algorithm, codec, {{"algorithm.codec", codec}, {"algorithm.k", "4"}}});
    }
  }
  return all;
}

class VariantOnADevice : public DeviceRanksTest, public ::testing::WithParamInterface<Variant> {};

TEST_P(VariantOnADevice, EqualsTheHost) {
  Keys keys = tiny_keys_of(GetParam().algorithm, GetParam().changes);
  keys.insert({"train.block", "4"});
  keys.insert({"network.step_seconds", "0.5"});
  const TinyResult expected = run(keys, *host_);
  keys["run.device"] = "cuda";
  const TinyResult actual = run(keys, *device_ranks_);
  // A value near the middle between two of a coarse codec may go to either.
  const bool coarse = keys.contains("algorithm.codec") && keys["algorithm.codec"] != "bitmap" &&
                      keys["algorithm.codec"] != "index_value" &&
                      keys["algorithm.codec"] != "run_length";
  const double bound = coarse ? 1e-3 : 1e-8;
  EXPECT_LT(distance(actual.global, expected.global), bound);
  EXPECT_LT(distance(actual.personal, expected.personal), bound);
  if (host_->rank() != 0) return;
  ASSERT_EQ(actual.metrics.size(), expected.metrics.size());
  for (std::size_t t = 0; t < expected.metrics.size(); ++t) {
    const RoundMetrics& a = actual.metrics[t];
    const RoundMetrics& b = expected.metrics[t];
    if (!coarse) {
      EXPECT_EQ(bytes_up(a), bytes_up(b));
      EXPECT_EQ(bytes_down(a), bytes_down(b));
    }
    EXPECT_EQ(a.simulated_seconds, b.simulated_seconds);
    ASSERT_EQ(a.own.size(), b.own.size());
    for (std::size_t m = 0; m < b.own.size(); ++m) {
      EXPECT_TRUE((std::isnan(a.own[m]) && std::isnan(b.own[m])) ||
                  std::abs(a.own[m] - b.own[m]) <= 1e-6 * (1 + std::abs(b.own[m])))
          << "metric " << m << " of its own, round " << t + 1 << ": " << a.own[m] << " and "
          << b.own[m];
    }
  }
}

TEST_P(VariantOnADevice, SameBitsWhenReproducible) {
  Keys keys = tiny_keys_of(GetParam().algorithm, GetParam().changes);
  keys["run.device"] = "cuda";
  keys["run.reproducible"] = "true";
  keys["train.block"] = "5";
  const TinyResult expected = run(keys, *alone_);
  for (const std::string width : {"2", "3"}) {
    keys["train.block"] = width;
    expect_same_bits(run(keys, *device_ranks_), expected, *device_ranks_);
  }
}

class ModelFileOnADevice : public DeviceRanksTest {};

TEST_F(ModelFileOnADevice, SameBitsWhenReproducible) {
  const std::vector<std::vector<std::string>> sums = {
      {"mean dims=0 inputs=2"},
      {"sum dims=0 inputs=2"},
      {"slice dim=0 start=1 end=2 inputs=2", "subtract inputs=2,3", "mean dims=0 inputs=4"},
      {"slice dim=0 start=1 end=2 inputs=2", "multiply inputs=3,2", "sum dims=0 inputs=4"},
      {"slice dim=0 start=1 end=2 inputs=2", "expand shape=4,6 inputs=3", "multiply inputs=2,4",
       "mean dims=0 inputs=5"}};
  const testing_support::TemporaryFolder folder;
  const std::string path = folder.path("net.h5");
  for (const std::vector<std::string>& lines : sums) {
    std::vector<std::string> all{"input shape=8", "reshape shape=4,2 inputs=0",
                                 "linear out=6 inputs=1 parameters=a.weight,a.bias"};
    all.insert(all.end(), lines.begin(), lines.end());
    all.push_back(
        concat("linear out=4 inputs=", all.size() - 1, " parameters=head.weight,head.bias"));
    {
      const h5::Handle file = h5::open_file(path, h5::Mode::Create);
      h5::write_attribute(file, "fedhpc_model", std::int64_t{1});
      h5::write_texts(file, "layers", all);
    }
    Keys keys = tiny_keys({{"model.name", "file"},
                           {"model.file", path},
                           {"run.dtype", "float32"},
                           {"run.device", "cuda"},
                           {"run.reproducible", "true"},
                           {"train.block", "5"}});
    keys.erase("model.hidden");
    const TinyResult expected = run(keys, *alone_);
    for (const std::string width : {"1", "2"}) {
      SCOPED_TRACE(lines.back() + " in blocks of " + width);
      keys["train.block"] = width;
      expect_same_bits(run(keys, *device_ranks_), expected, *device_ranks_);
    }
    keys["run.device"] = "cpu";
    EXPECT_LT(distance(expected.global, run(keys, *host_).global), 1e-5) << lines.back();
  }
}

class GradientsOnADevice : public DeviceRanksTest {};

TEST_F(GradientsOnADevice, AreNotFetchedWhereNothingDrawsThemTogether) {
  if (bytes_to_host() < 0) GTEST_SKIP() << "copies are not counted";
  std::int64_t of_all = 0;  // bytes of all clients' models, which are all they have
  const auto fetched = [&](const Keys& changes, const std::string& rounds) {
    Keys keys = tiny_keys_of("simnet", changes);
    keys["run.device"] = "cuda";
    keys["run.rounds"] = rounds;
    keys["run.eval_every"] = "100";
    const std::int64_t before = bytes_to_host();
    of_all = static_cast<std::int64_t>(run(keys, *alone_).global.nbytes());
    return bytes_to_host() - before;
  };
  const auto of_a_round = [&](const Keys& changes) {
    return (fetched(changes, "6") - fetched(changes, "2")) / 4;
  };
  // Neighbours' models are drawn together where they lie.
  for (const std::string neighbours : {"0", "2"}) {
    const std::int64_t plain = of_a_round({{"algorithm.gamma", "0"},
                                           {"algorithm.neighbours", neighbours},
                                           {"algorithm.personal", "all"},
                                           {"algorithm.p", "1"}});
    EXPECT_LT(plain, of_all / 10) << neighbours << " neighbours";
  }
  EXPECT_GE(of_a_round({{"algorithm.gamma", "0.05"}, {"algorithm.neighbours", "0"}}), of_all);
}

class StepsOnADevice : public VariantOnADevice {};

TEST_P(StepsOnADevice, DoNotWaitForTheDevice) {
  if (waits_for_device() < 0) GTEST_SKIP() << "waits are not counted";
  const auto waits = [&](const std::string& steps) {
    Keys keys = tiny_keys_of(GetParam().algorithm, GetParam().changes);
    keys.erase("train.local_epochs");
    keys["train.local_steps"] = steps;
    keys["train.block"] = "4";
    if (device_ranks_->size() > 1) {  // of clients of one size a rank has the same for any steps
      keys.erase("data.partition_file");
      keys["data.partition"] = "iid";
    }
    keys["run.device"] = "cuda";
    const std::int64_t before = waits_for_device();
    run(keys, *device_ranks_);
    return waits_for_device() - before;
  };
  EXPECT_EQ(waits("9"), waits("3"));
}

TEST_P(StepsOnADevice, AreRepeatedAndMoveAsOnTheHost) {
  Keys keys = tiny_keys_of(GetParam().algorithm, GetParam().changes);
  keys.erase("train.local_epochs");
  keys["train.local_steps"] = "7";
  keys["train.block"] = "4";
  const TinyResult expected = run(keys, *host_);
  keys["run.device"] = "cuda";
  const std::int64_t before = replays_on_device();
  const TinyResult actual = run(keys, *device_ranks_);
  EXPECT_LT(distance(actual.global, expected.global), 1e-8);
  EXPECT_LT(distance(actual.personal, expected.personal), 1e-8);
  if (before < 0) return;
  // Of seven steps of the clients of a block, five are repetitions. A rank may have no clients.
  Tensor replays = at::full({1}, replays_on_device() - before, at::kLong);
  host_->sum_(replays);
  EXPECT_GE(replays.item<std::int64_t>(), 5)
      << "block.each_step(Steps::Alike, ...) has steps repeated that move tensors in place";
}

std::vector<Variant> of_every_algorithm() {
  std::vector<Variant> all{
      {"perfedavg", "hf", {{"algorithm.variant", "hf"}, {"algorithm.delta", "0.01"}}}};
  for (const std::string& name : algorithm_names()) {
    // Classifiers, and steps of binary updates, are fitted on the host: every local step waits.
    if (name == "pfedgp" || name == "fedbat") continue;
    all.push_back({name, "default", {}});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Registry, StepsOnADevice, ::testing::ValuesIn(of_every_algorithm()),
                         [](const auto& one) {
                           return one.param.algorithm + "_" + one.param.name;
                         });

INSTANTIATE_TEST_SUITE_P(All, VariantOnADevice, ::testing::ValuesIn(variants()),
                         [](const auto& one) {
                           return one.param.algorithm + "_" + one.param.name;
                         });

}  // namespace
}  // namespace fedhpc::testing
