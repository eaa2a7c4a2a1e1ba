#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/error.hpp"

#include "fixtures/reference_case.hpp"
#include "fixtures/resumed_run.hpp"
#include "reference/fedamp_reference.hpp"
#include "reference/feddwa_reference.hpp"
#include "reference/feedback_reference.hpp"
#include "reference/pfedgraph_reference.hpp"

// Compressors, error feedback and compressed downloads, of methods that have them.
namespace fedhpc::testing {
namespace {

class FeedbackReference : public ::testing::TestWithParam<ReferenceCase> {};

Keys top_k(const std::string& fraction, const std::string& feedback, Keys changes = {}) {
  changes.insert({{"algorithm.codec", "top_k"},
                  {"algorithm.codec_fraction", fraction},
                  {"algorithm.error_feedback", feedback},
                  {"topology.participation", "0.6"},
                  {"run.rounds", "6"}});
  return changes;
}

Keys scaffold(const std::string& fraction, const std::string& feedback, Keys changes = {}) {
  changes.insert({{"algorithm.name", "scaffold"}, {"algorithm.control", "steps"}});
  return top_k(fraction, feedback, changes);
}

/// Without anything personal SimNet is federated averaging of equal clients, who send gradients.
Keys simnet(const std::string& fraction, const std::string& feedback, Keys changes = {}) {
  changes.insert({{"algorithm.name", "simnet"}, {"algorithm.personal", "none"}});
  return top_k(fraction, feedback, changes);
}

Keys hierfavg(const std::string& fraction, const std::string& feedback, Keys changes = {}) {
  changes.insert({{"algorithm.name", "hierfavg"},
                  {"algorithm.edge_rounds", "2"},
                  {"topology.edges", "3"},
                  {"algorithm.downlink_codec", "top_k"}});
  return top_k(fraction, feedback, changes);
}

/// One client of an edge has samples, and a round may draw another one.
Keys with_idle_edges(Keys keys) {
  keys["data.partition_file"] =
      partition_of("idle_edges.h5", {9, 0, 0, 8, 0, 10, 0}, {3, 3, 3, 3, 3, 3, 3});
  return keys;
}

std::int64_t count_of(const reference::Problem& problem, const Keys& keys) {
  const double fraction = std::stod(keys.at("algorithm.codec_fraction"));
  const auto columns =
      static_cast<double>(reference::trainable_columns(problem, /*norms=*/false).numel());
  return static_cast<std::int64_t>(std::floor(fraction * columns + 0.5));
}

reference::Feedback feedback_of(const Keys& keys) {
  const std::string name = keys.at("algorithm.error_feedback");
  return name == "none"   ? reference::Feedback::None
         : name == "ef14" ? reference::Feedback::Ef14
                          : reference::Feedback::Ef21;
}

TEST_P(FeedbackReference, EqualsPlainLoop) {
  const Keys keys = tiny_keys(GetParam().changes);
  reference::Problem problem = reference::make_problem(keys);
  const std::int64_t k = count_of(problem, keys);
  const std::int64_t k_down = keys.contains("algorithm.downlink_codec") ? k : 0;
  const bool is_scaffold = keys.contains("algorithm.control");
  const reference::Feedback feedback = feedback_of(keys);
  problem.uniform = is_scaffold || keys.contains("algorithm.personal");
  reference::Outcome expected = is_scaffold ? top_k_scaffold(problem, k, feedback, k_down)
                                : keys.contains("algorithm.edge_rounds")
                                    ? top_k_hierfavg(problem, 2, k, feedback, k_down)
                                    : top_k_fedavg(problem, k, feedback, k_down);
  if (keys.contains("algorithm.personal")) {  // simnet: every client's own is the common model
    expected.global = expected.global.repeat({std::ssize(problem.clients)});
  }
  expect_equals_reference(keys, expected, GetParam().single_bound);
}

INSTANTIATE_TEST_SUITE_P(
    Settings, FeedbackReference,
    ::testing::Values(
        ReferenceCase{"none", top_k("0.1", "none")}, ReferenceCase{"ef14", top_k("0.1", "ef14")},
        ReferenceCase{"ef21", top_k("0.1", "ef21")},
        ReferenceCase{"ef14_wide_blocks", top_k("0.3", "ef14", {{"train.block", "4"}})},
        ReferenceCase{"ef21_all_clients", top_k("0.05", "ef21", {{"topology.participation", "1"}})},
        ReferenceCase{"both_directions",
                      top_k("0.2", "ef21", {{"algorithm.downlink_codec", "top_k"}})},
        ReferenceCase{
            "both_directions_ef14",
            top_k("0.3", "ef14", {{"algorithm.downlink_codec", "top_k"}, {"train.block", "3"}})},
        ReferenceCase{
            "both_directions_batch_norm",
            with_batch_norm(top_k("0.2", "ef21", {{"algorithm.downlink_codec", "top_k"}})),
            kBatchNormBound},
        ReferenceCase{"ef14_batch_norm",
                      with_batch_norm(top_k("0.2", "ef14", {{"train.block", "3"}})),
                      kBatchNormBound},
        ReferenceCase{"simnet", simnet("0.2", "none")},
        ReferenceCase{"simnet_ef14", simnet("0.1", "ef14", {{"train.block", "3"}})},
        ReferenceCase{"simnet_both_directions",
                      simnet("0.2", "ef21", {{"algorithm.downlink_codec", "top_k"}})},
        ReferenceCase{"scaffold", scaffold("0.3", "none")},
        ReferenceCase{"scaffold_ef14", scaffold("0.2", "ef14", {{"train.block", "3"}})},
        ReferenceCase{"scaffold_both_directions",
                      scaffold("0.3", "ef21", {{"algorithm.downlink_codec", "top_k"}})},
        ReferenceCase{"hierfavg_both_directions", hierfavg("0.3", "none")},
        ReferenceCase{"hierfavg_both_directions_ef21", hierfavg("0.2", "ef21")},
        ReferenceCase{"hierfavg_idle_edges_ef14", with_idle_edges(hierfavg("0.2", "ef14"))},
        ReferenceCase{"hierfavg_idle_edges_ef21", with_idle_edges(hierfavg("0.2", "ef21"))},
        ReferenceCase{"hierfavg_batch_norm", with_batch_norm(hierfavg("0.3", "ef21")),
                      kBatchNormBound}),
    name_of);

class ModelsReference : public ::testing::TestWithParam<ReferenceCase> {};

reference::Link link_of(const reference::Problem& problem, const Keys& keys) {
  const std::int64_t k = count_of(problem, keys);
  return {problem,
          reference::flatten(problem.initial),
          {.k = k,
           .feedback = reference::Feedback::Ef21,
           .k_down = keys.contains("algorithm.downlink_codec") ? k : 0,
           .models = true}};
}

TEST_P(ModelsReference, TravelAsChangesOfWhatIsKnown) {
  const Keys keys = tiny_keys(top_k("0.2", "ef21", GetParam().changes));
  const reference::Problem problem = reference::make_problem(keys);
  reference::Link models = link_of(problem, keys);
  reference::Link guides = link_of(problem, keys);
  reference::Outcome expected;
  if (keys.at("algorithm.name") == "pfedgraph") {
    reference::PFedGraphOutcome outcome = reference::pfedgraph(problem, {.lambda = 5}, &models);
    expected = {.global = flatten_all(outcome.models), .train_loss = outcome.train_loss};
  } else if (keys.at("algorithm.name") == "fedamp") {
    reference::MessagesOutcome outcome =
        reference::fedamp(problem, {.sigma = 2, .alpha_k = 0.3, .lambda = 0.7}, &models);
    expected = {.global = flatten_all(outcome.models), .train_loss = outcome.train_loss};
  } else {
    reference::FedDWAOutcome outcome = reference::feddwa(problem, /*top_k=*/3, &models, &guides);
    expected = {.global = flatten_all(outcome.clouds), .train_loss = outcome.train_loss};
  }
  expect_equals_reference(keys, expected, GetParam().single_bound);
}

const Keys kFedAMP{{"algorithm.name", "fedamp"},
                   {"algorithm.sigma", "2"},
                   {"algorithm.alpha_k", "0.3"},
                   {"algorithm.lambda", "0.7"}};
const Keys kPFedGraph{{"algorithm.name", "pfedgraph"}, {"algorithm.lambda", "5"}};
const Keys kFedDWA{{"algorithm.name", "feddwa"}, {"algorithm.top_k", "3"}};

Keys with(Keys keys, const Keys& more) {
  keys.insert(more.begin(), more.end());
  return keys;
}

INSTANTIATE_TEST_SUITE_P(
    Settings, ModelsReference,
    ::testing::Values(ReferenceCase{"fedamp", kFedAMP},
                      ReferenceCase{"fedamp_wide_blocks", with(kFedAMP, {{"train.block", "4"}})},
                      ReferenceCase{"fedamp_both_directions",
                                    with(kFedAMP, {{"algorithm.downlink_codec", "top_k"}})},
                      ReferenceCase{"pfedgraph_both_directions",
                                    with(kPFedGraph, {{"algorithm.downlink_codec", "top_k"}})},
                      ReferenceCase{"feddwa", kFedDWA},
                      ReferenceCase{"feddwa_both_directions",
                                    with(kFedDWA, {{"algorithm.downlink_codec", "top_k"}})}),
    name_of);

const std::vector<std::string> kCodecs{"top_k", "rand_k",  "sign",  "qsgd",      "terngrad", "int8",
                                       "int4",  "natural", "drive", "power_sgd", "bf16"};

TEST(Feedback, IsTheSameOnAnyRanksToTheLastBit) {
  const std::unique_ptr<Communicator> world = world_communicator(60);
  const std::unique_ptr<Communicator> alone = local_communicator();
  std::size_t turn = 0;
  for (const std::string& codec : kCodecs) {
    for (const std::string method : {"fedavg", "hierfavg", "scaffold"}) {
      Keys keys =
          tiny_keys_of(method, {{"algorithm.codec", codec},
                                {"algorithm.downlink_codec", codec},
                                {"algorithm.error_feedback", turn % 2 == 0 ? "ef14" : "ef21"},
                                {"topology.participation", "0.6"},
                                {"run.rounds", "4"},
                                {"run.reproducible", "true"}});
      const TinyResult one = run(keys, *alone);
      keys["train.block"] = turn++ % 2 == 0 ? "3" : "1";
      const TinyResult all = run(keys, *world);
      EXPECT_TRUE(all.global.equal(one.global)) << method << ' ' << codec;
      EXPECT_GT(distance(one.global, one.initial), 1e-3) << method << ' ' << codec;
      if (world->rank() != 0) continue;
      for (std::size_t t = 0; t < all.metrics.size(); ++t) {
        EXPECT_EQ(bytes_up(all.metrics[t]), bytes_up(one.metrics[t])) << method << ' ' << codec;
        EXPECT_EQ(bytes_down(all.metrics[t]), bytes_down(one.metrics[t])) << codec;
      }
    }
  }
}

// Those that send whole models have ef21 alone.
const std::vector<std::string> kOfModels{"fedamp", "feddwa", "pfedgraph", "tdpfed"};

Keys both_ways(const std::string& method, const std::string& codec, Keys changes = {}) {
  changes.insert({{"algorithm.codec", codec},
                  {"algorithm.downlink_codec", codec},
                  {"algorithm.error_feedback", "ef21"},
                  {"topology.participation", "0.6"},
                  {"run.rounds", "4"}});
  if (method == "tdpfed") changes.insert({"algorithm.broadcast", "tensor"});
  return tiny_keys_of(method, changes);
}

TEST(Feedback, OfOwnModelsIsTheSameOnAnyRanks) {
  const std::unique_ptr<Communicator> world = world_communicator(60);
  const std::unique_ptr<Communicator> alone = local_communicator();
  for (const std::string& codec : kCodecs) {
    for (const std::string method : {"simnet", "fedamp", "feddwa", "pfedgraph", "tdpfed"}) {
      Keys keys = both_ways(method, codec, {{"run.reproducible", "true"}});
      const TinyResult one = run(keys, *alone);
      keys["train.block"] = "3";
      const TinyResult all = run(keys, *world);
      EXPECT_TRUE(all.personal.equal(one.personal)) << method << ' ' << codec;
    }
  }
}

TEST(Feedback, GoesOnFromACheckpoint) {
  const std::unique_ptr<Communicator> world = world_communicator(60);
  for (const std::string method :
       {"fedavg", "hierfavg", "fedlmt", "fedrep", "scaffold", "pfedgp"}) {
    for (const std::string feedback : {"ef14", "ef21"}) {
      const Keys keys = tiny_keys_of(method, {{"algorithm.codec", "drive"},
                                              {"algorithm.downlink_codec", "int4"},
                                              {"algorithm.error_feedback", feedback},
                                              {"topology.participation", "0.6"},
                                              {"run.rounds", "6"}});
      const TinyResult straight = run(keys, *world);
      const TinyResult parts = run_in_two_parts(keys, 3, *world, *world);
      EXPECT_TRUE(parts.global.equal(straight.global)) << method << ' ' << feedback;
    }
  }
}

TEST(Feedback, GoesOnInsideARound) {
  const std::unique_ptr<Communicator> world = world_communicator(60);
  for (const std::string method : {"fedavg", "hierfavg", "scaffold"}) {
    const Keys keys = tiny_keys_of(method, {{"algorithm.codec", "qsgd"},
                                            {"algorithm.downlink_codec", "natural"},
                                            {"algorithm.error_feedback", "ef21"},
                                            {"topology.participation", "1"},
                                            {"run.rounds", "2"},
                                            {"run.grace_seconds", "0"},
                                            {"train.block", "1"}});
    const TinyResult straight = run(keys, *world);
    int left = 0;
    const TinyResult parts = run_left_in_rounds(keys, *world, left);
    EXPECT_TRUE(parts.global.equal(straight.global)) << method;
    EXPECT_GT(left, 0) << method;
  }
}

TEST(Feedback, Ef14ForgetsNothing) {
  // What has arrived over all rounds is the sum of the changes less what is kept: with one client,
  // a rate of 0 after round 1 and rounds enough for all columns, nothing is left to send.
  const std::unique_ptr<Communicator> world = world_communicator(60);
  Keys keys = tiny_keys({{"algorithm.codec", "top_k"},
                         {"algorithm.codec_fraction", "0.25"},
                         {"algorithm.error_feedback", "ef14"},
                         {"train.lr_schedule", "exponential"},
                         {"train.lr_decay", "1e-300"},
                         {"run.rounds", "5"}});
  const TinyResult in_parts = run(keys, *world);
  keys["algorithm.codec_fraction"] = "1";
  const TinyResult at_once = run(keys, *world);
  EXPECT_LT(distance(in_parts.global, at_once.global), 1e-12);
  keys["algorithm.codec_fraction"] = "0.25";
  keys["algorithm.error_feedback"] = "none";
  EXPECT_GT(distance(run(keys, *world).global, at_once.global), 1e-3);
}

TEST(Feedback, OfOwnModelsGoesOnFromACheckpointAndInsideARound) {
  const std::unique_ptr<Communicator> world = world_communicator(60);
  for (const std::string method : {"simnet", "fedamp", "feddwa", "pfedgraph", "tdpfed"}) {
    const Keys keys = both_ways(method, "qsgd");
    EXPECT_TRUE(
        run_in_two_parts(keys, 2, *world, *world).personal.equal(run(keys, *world).personal))
        << method;
  }
  const Keys keys = both_ways(  // the only one of them whose rounds can be left
      "tdpfed", "drive", {{"run.grace_seconds", "0"}, {"train.block", "1"}, {"run.rounds", "2"}});
  int left = 0;
  const TinyResult parts = run_left_in_rounds(keys, *world, left);
  EXPECT_TRUE(parts.personal.equal(run(keys, *world).personal));
  EXPECT_GT(left, 0);
}

void expect_refused(const Keys& keys, const std::string& because) {
  try {
    run(keys, *world_communicator(60));
    ADD_FAILURE() << keys.at("algorithm.name");
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find(because), std::string::npos) << error.what();
  }
}

TEST(Feedback, WholeModelsAreCompressedAsChangesAlone) {
  for (const std::string& method : kOfModels) {
    expect_refused(tiny_keys_of(method, {{"algorithm.codec", "top_k"}}),
                   "cannot be 'top_k' with algorithm.error_feedback = none");
    expect_refused(
        tiny_keys_of(method, {{"algorithm.codec", "top_k"}, {"algorithm.error_feedback", "ef14"}}),
        "cannot be 'ef14'");
  }
  for (const std::string method : {"fedhm", "sfedhp"}) {
    expect_refused(tiny_keys_of(method, {{"algorithm.codec", "top_k"}}), "cannot be 'top_k'");
  }
}

}  // namespace
}  // namespace fedhpc::testing
