#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"
#include "fedhpc/engine/plan.hpp"

#include "fixtures/in_turn.hpp"
#include "fixtures/tiny_run.hpp"

// Holds for every algorithm of the registry without code of its own.
namespace fedhpc::testing {
namespace {

class EveryAlgorithm : public ::testing::TestWithParam<std::string> {
 protected:
  Keys keys(const Keys& changes = {}) const { return tiny_keys_of(GetParam(), changes); }

  /// Of float32 runs (docs/semantics.md, 5): Adam steps of rounding errors are as long as any.
  double single_bound() const { return GetParam() == "tdpfed" ? 1e-3 : 1e-5; }

  std::unique_ptr<Communicator> world_ = world_communicator(60);
  std::unique_ptr<Communicator> alone_ = local_communicator();
};

TEST_P(EveryAlgorithm, SameOnAnyNumberOfRanks) {
  std::size_t place = 0;
  for (const auto& [participation, edges] :
       {std::pair{"1", "4"}, std::pair{"0.5", "1"}, std::pair{"0.5", "7"}}) {
    const std::string dtype = in_turn<std::string>({"float64", "float32"}, place++, *world_);
    const Keys these = keys({{"run.dtype", dtype},
                             {"topology.participation", participation},
                             {"topology.edges", edges}});
    const TinyResult expected = run(these, *alone_);
    const TinyResult actual = run(these, *world_);
    const double bound = dtype == "float64" ? 1e-9 : single_bound();
    EXPECT_LT(distance(actual.global, expected.global), bound);
    EXPECT_LT(distance(actual.personal, expected.personal), bound);
    EXPECT_EQ(actual.cohorts, expected.cohorts);
    if (world_->rank() != 0) continue;
    for (std::size_t t = 0; t < expected.metrics.size(); ++t) {
      EXPECT_NEAR(actual.metrics[t].personal_accuracy, expected.metrics[t].personal_accuracy, 0.03);
      EXPECT_EQ(bytes_up(actual.metrics[t]), bytes_up(expected.metrics[t]));
      EXPECT_EQ(bytes_down(actual.metrics[t]), bytes_down(expected.metrics[t]));
      EXPECT_NEAR(actual.metrics[t].train_loss, expected.metrics[t].train_loss, 1e-5);
    }
  }
}

TEST_P(EveryAlgorithm, SameBitsWhenReproducible) {
  std::size_t place = 0;
  for (const std::string edges : {"1", "4", "7"}) {
    for (const std::string dtype : {"float64", "float32"}) {
      Keys these = keys({{"run.dtype", dtype},
                         {"topology.edges", edges},
                         {"topology.participation", "0.8"},
                         {"run.reproducible", "true"}});
      if (edges == "4") these["train.stragglers"] = "0.5";
      const TinyResult expected = run(these, *alone_);
      these["train.block"] = in_turn<std::string>({"1", "3", "8"}, place++, *world_);
      expect_same_bits(run(these, *world_), expected, *world_);
    }
  }
}

TEST_P(EveryAlgorithm, SameOnMoreRanksThanClients) {
  // Two clients: from three ranks on, at least one rank has none.
  Keys these =
      keys({{"data.partition", "natural"}, {"data.clients", "2"}, {"topology.edges", "2"}});
  these.erase("data.partition_file");
  EXPECT_LT(distance(run(these, *world_).global, run(these, *alone_).global), 1e-9);
}

TEST_P(EveryAlgorithm, SameInAnyBlockWidth) {
  std::size_t place = 0;
  for (const std::string dtype : {"float64", "float32"}) {
    const double bound = dtype == "float64" ? 1e-9 : single_bound();
    const TinyResult narrow = run(keys({{"train.block", "1"}, {"run.dtype", dtype}}), *world_);
    const std::string width = in_turn<std::string>({"3", "8", "auto"}, place++, *world_);
    const TinyResult wide = run(keys({{"train.block", width}, {"run.dtype", dtype}}), *world_);
    EXPECT_LT(distance(wide.global, narrow.global), bound) << "width " << width;
    EXPECT_TRUE(wide.initial.equal(narrow.initial)) << "measuring the width moved the model";
  }
}

TEST_P(EveryAlgorithm, EveryOptimizerIsSameOnAnyRanksAndInAnyBlockWidth) {
  // Clients of a block run out of steps at different times; each has an optimizer of its own.
  std::size_t place = 0;
  for (const std::string optimizer : {"momentum", "nesterov", "adam"}) {
    const Keys these = keys(
        {{"train.optimizer", optimizer}, {"train.weight_decay", "0.01"}, {"train.lr", "0.02"}});
    if (refuses(these)) continue;  // it says so, rather than to train by another rule
    const TinyResult expected = run(these, *alone_);
    Keys wide = these;
    wide["train.block"] = in_turn<std::string>({"1", "3", "8"}, place++, *world_);
    EXPECT_LT(distance(run(wide, *world_).global, expected.global), 1e-9)
        << optimizer << " width " << wide["train.block"];
  }
}

TEST_P(EveryAlgorithm, ShortenedGradientsAreSameOnAnyRanksAndInAnyBlockWidth) {
  Keys these = keys({{"train.clip_norm", "0.05"}, {"run.reproducible", "true"}});
  const bool refused = refuses_on_command_line(these);
  EXPECT_EQ(refused, GetParam() == "tdpfed" || GetParam() == "pfedgp");
  if (refused) return;
  const TinyResult expected = run(these, *alone_);
  these["train.block"] = in_turn<std::string>({"2", "3", "8"}, 0, *world_);
  expect_same_bits(run(these, *world_), expected, *world_);
  these["train.clip_norm"] = "0";
  EXPECT_GT(distance(run(these, *alone_).global, expected.global), 1e-6);
}

TEST_P(EveryAlgorithm, PreparedImagesAreSameOnAnyRanksAndInAnyBlockWidth) {
  for (const auto& [rule, augment] : {std::pair{"pixel", "none"}, std::pair{"half", "crop_flip"}}) {
    Keys these = keys({{"data.name", "glyphs"},
                       {"data.partition", "pfedme"},
                       {"data.standardize", rule},
                       {"data.augment", augment},
                       {"train.local_epochs", "1"}});
    these.erase("data.partition_file");
    // Rounding alone tells the weights of pixels apart that are always equal.
    if (has_key(GetParam(), "algorithm.select_limit")) these["algorithm.select_limit"] = "0";
    const TinyResult expected = run(these, *alone_);
    for (const std::string width : {"1", "4"}) {
      Keys wide = these;
      wide["train.block"] = width;
      EXPECT_LT(distance(run(wide, *world_).global, expected.global), 1e-9)
          << rule << " " << augment << " width " << width;
    }
    these["data.standardize"] = "half";
    these["data.augment"] = "none";
    EXPECT_GT(distance(run(these, *alone_).global, expected.global), 1e-3) << rule << augment;
  }
}

TEST_P(EveryAlgorithm, ClientsMayBePermutedInFullBatch) {
  if (GetParam() == "pfedgp") {
    GTEST_SKIP() << "its chains are drawn by the number of the client, whatever the batch";
  }
  Keys straight = keys({{"train.batch_size", "0"}});
  if (GetParam() == "ef21p") straight["algorithm.upload"] = "top_k";              // nothing drawn
  if (GetParam() == "fedbat") straight["algorithm.warm_up"] = "1";                // nothing drawn
  if (has_key(GetParam(), "algorithm.share")) straight["algorithm.share"] = "1";  // nothing drawn
  Keys permuted = straight;
  const int edges = has_edge_models(GetParam()) ? 4 : 0;
  const std::vector<int> order{4, 6, 0, 2, 5, 3, 1};
  permuted["data.partition_file"] = ragged_partition(order, edges);
  const TinyResult expected = run(straight, *world_);
  const TinyResult actual = run(permuted, *world_);
  const Models models = models_evaluated_by(GetParam());
  if (has_global(models)) {
    EXPECT_LT(distance(actual.global, expected.global), 1e-9);
  }
  if (has_personal(models)) {
    EXPECT_LT(distance(in_plain_order(actual.personal, order), expected.personal), 1e-9);
  }
}

TEST_P(EveryAlgorithm, StepsOfSizeZeroMoveNothing) {
  for (const std::string optimizer : {"sgd", "momentum", "nesterov", "adam"}) {
    Keys these = keys({{"train.lr", "0"}, {"train.optimizer", optimizer}});
    if (has_key(GetParam(), "algorithm.zero_threshold")) these["algorithm.zero_threshold"] = "0";
    if (has_key(GetParam(), "algorithm.least_step")) {
      these["algorithm.least_step"] = "0";
      these["algorithm.most_step"] = "1e-300";  // without a warm-up they do not begin at 0
    }
    if (refuses(these)) continue;
    const bool truncates = GetParam() == "fedhm";  // where no step is made, too
    if (truncates) these["model.rank"] = "6,4";
    const TinyResult still = run(these, *world_);
    if (truncates) {
      EXPECT_LT(distance(still.global, still.initial), 1e-13) << optimizer;
      continue;
    }
    EXPECT_TRUE(still.global.equal(still.initial)) << optimizer;
  }
}

TEST_P(EveryAlgorithm, LearnsSomething) {
  const TinyResult result = run(keys({{"run.rounds", "20"}}), *world_);
  EXPECT_GT(distance(result.global, result.initial), 1e-2);
  EXPECT_LT(result.metrics.back().train_loss, 0.9 * result.metrics.front().train_loss);
}

TEST_P(EveryAlgorithm, ClientsWithOneOrNoSampleGiveNoNan) {
  // Clients 2 and 3 of the ragged partition have one and no training sample, client 4 no test
  // sample.
  for (const std::string batch : {"0", "1", "4"}) {
    const TinyResult result = run(keys({{"train.batch_size", batch}}), *world_);
    EXPECT_TRUE(result.global.isfinite().all().item<bool>());
    if (world_->rank() != 0) continue;
    EXPECT_EQ(std::isfinite(result.metrics.back().global_accuracy),
              has_global(models_evaluated_by(GetParam())));
    EXPECT_TRUE(std::isfinite(result.metrics.back().personal_accuracy));
    EXPECT_TRUE(std::isfinite(result.metrics.back().best_personal_accuracy));
  }
}

/// Which rounds have participants only that have taken part before.
std::vector<bool> rounds_of_known_clients(const TinyResult& result) {
  std::vector<bool> rounds;
  std::set<std::int64_t> known;
  for (const std::vector<std::int64_t>& cohort : result.cohorts) {
    rounds.push_back(std::all_of(cohort.begin(), cohort.end(),
                                 [&](std::int64_t client) { return known.contains(client); }));
    known.insert(cohort.begin(), cohort.end());
  }
  return rounds;
}

TEST_P(EveryAlgorithm, PlansTheBytesItBooks) {
  // A plan is for clients that have come before; pfedsop sends others a model, too.
  const bool greets = GetParam() == "pfedsop";
  std::vector<Keys> settings{{}, {{"run.dtype", "float32"}}};
  // Codecs whose payloads all have one size, for methods that let one choose.
  for (const std::string codec : {"dense32", "fp16", "bf16"}) {
    if (has_key(GetParam(), "algorithm.codec")) settings.push_back({{"algorithm.codec", codec}});
  }
  for (Keys setting : settings) {
    setting["topology.participation"] = "0.6";
    if (greets) setting["run.rounds"] = "12";
    // Else payloads shrink.
    if (has_key(GetParam(), "algorithm.select_limit")) setting["algorithm.select_limit"] = "0";
    const Keys these = keys(setting);
    const PlannedRun planned = plan(these, *world_);
    const TinyResult result = run(these, *world_);
    if (world_->rank() != 0) continue;
    const std::vector<bool> known = rounds_of_known_clients(result);
    EXPECT_TRUE(!greets || std::count(known.begin(), known.end(), true) > 0);
    // fedcomloc sends a model to those of the last round, too.
    const bool follows = GetParam() == "fedcomloc";
    double last = 0;  // participants
    for (std::size_t t = 0; t < result.metrics.size(); ++t) {
      if (greets && !known[t]) continue;
      const RoundMetrics& metrics = result.metrics[t];
      const bool edges = has_edge_models(GetParam());
      const double up = edges ? metrics.bytes_up_client_edge : metrics.bytes_up_client_cloud;
      const double down = edges ? metrics.bytes_down_client_edge : metrics.bytes_down_client_cloud;
      EXPECT_EQ(up, metrics.participants * static_cast<double>(planned.up_per_client));
      const auto payload = static_cast<double>(planned.down_per_client);
      const double others = down - metrics.participants * payload;
      EXPECT_GE(others, 0);
      EXPECT_LE(others, follows ? last * payload : 0);
      if (payload > 0) {
        EXPECT_EQ(std::fmod(others, payload), 0);
      }
      last = metrics.participants;
      if (!edges) continue;
      EXPECT_EQ(metrics.bytes_up_edge_cloud, 4 * static_cast<double>(planned.up_per_edge));
      EXPECT_EQ(metrics.bytes_down_edge_cloud, 4 * static_cast<double>(planned.down_per_edge));
    }
  }
}

/// Bytes of a participant's payloads that are not of the run's type, up and down: seeds, the places
/// of 3 columns of 82, the signs of 72 weights.
std::pair<double, double> fixed_bytes(const std::string& algorithm) {
  if (algorithm == "fedmud") return {0, 8};
  if (algorithm == "ef21p") return {8, 3};
  if (algorithm == "fedbat") return {9, 0};
  return {0, 0};
}

TEST_P(EveryAlgorithm, BooksWholePayloads) {
  // Dense models of float64 and float32: twice the bytes, a whole number of payloads per
  // participant.
  Keys changes;
  if (has_key(GetParam(), "algorithm.select_limit")) changes["algorithm.select_limit"] = "0";
  const TinyResult wide = run(keys(changes), *world_);
  changes["run.dtype"] = "float32";
  const TinyResult narrow = run(keys(changes), *world_);
  const PlannedRun planned = plan(keys(changes), *world_);
  if (world_->rank() != 0) return;
  const auto [fixed_up, fixed_down] = fixed_bytes(GetParam());
  for (std::size_t t = 0; t < wide.metrics.size(); ++t) {
    const double clients = wide.metrics[t].participants;
    const double up = bytes_up(narrow.metrics[t]);
    const double down = bytes_down(narrow.metrics[t]);
    EXPECT_EQ(up > 0, GetParam() != "localonly");
    EXPECT_EQ(bytes_up(wide.metrics[t]), 2 * up - clients * fixed_up);
    EXPECT_EQ(bytes_down(wide.metrics[t]), 2 * down - clients * fixed_down);
    if (up > 0) {
      const bool edges = has_edge_models(GetParam());  // they send one payload a round
      const std::int64_t payload = edges ? planned.up_per_edge : planned.up_per_client;
      EXPECT_EQ(std::fmod(up, static_cast<double>(payload)), 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryAlgorithm, ::testing::ValuesIn(algorithm_names()),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace fedhpc::testing
