#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/error.hpp"

#include "fixtures/reference_case.hpp"
#include "fixtures/resumed_run.hpp"
#include "reference/feedback_reference.hpp"

// Compressors, error feedback and compressed downloads, of methods that have them.
namespace fedhpc::testing {
namespace {

// The tiny model has d = 8 * 6 + 6 + 6 * 4 + 4 columns.
constexpr std::int64_t kColumns = 82;

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

TEST_P(FeedbackReference, EqualsPlainLoop) {
  const Keys keys = tiny_keys(GetParam().changes);
  const std::string feedback = keys.at("algorithm.error_feedback");
  const double fraction = std::stod(keys.at("algorithm.codec_fraction"));
  const auto k = static_cast<std::int64_t>(std::floor(fraction * kColumns + 0.5));
  const bool is_scaffold = keys.contains("algorithm.control");
  const auto reference = is_scaffold ? reference::top_k_scaffold : reference::top_k_fedavg;
  reference::Problem problem = reference::make_problem(keys);
  problem.uniform = is_scaffold;
  expect_equals_reference(keys,
                          reference(problem, k,
                                    feedback == "none"   ? reference::Feedback::None
                                    : feedback == "ef14" ? reference::Feedback::Ef14
                                                         : reference::Feedback::Ef21,
                                    keys.contains("algorithm.downlink_codec") ? k : 0),
                          GetParam().single_bound);
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
        ReferenceCase{"scaffold", scaffold("0.3", "none")},
        ReferenceCase{"scaffold_ef14", scaffold("0.2", "ef14", {{"train.block", "3"}})},
        ReferenceCase{"scaffold_both_directions",
                      scaffold("0.3", "ef21", {{"algorithm.downlink_codec", "top_k"}})}),
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

TEST(Feedback, MethodsThatSendWholeModelsHaveNoCompressors) {
  const std::unique_ptr<Communicator> world = world_communicator(60);
  for (const std::string method : {"fedamp", "feddwa", "fedhm", "tdpfed", "sfedhp"}) {
    try {
      run(tiny_keys_of(method, {{"algorithm.codec", "top_k"}}), *world);
      ADD_FAILURE() << method;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("cannot be 'top_k'"), std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace fedhpc::testing
