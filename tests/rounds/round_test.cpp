#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "fedhpc/codecs/codec.hpp"
#include "fedhpc/comm/session.hpp"

#include "fixtures/tiny_run.hpp"

// What a round books on the simulated network, through whole runs.
namespace fedhpc::testing {
namespace {

class EveryCodec : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryCodec, IsBookedWithTheBytesItEncodes) {
  // One client, one round of full-batch steps: its update is the difference of the two models, and
  // what arrives is the update decoded.
  const auto world = world_communicator(60);
  for (const std::string dtype : {"float64", "float32"}) {
    Keys keys = tiny_keys({{"run.rounds", "1"},
                           {"run.dtype", dtype},
                           {"topology.participation", "0.01"},
                           {"train.batch_size", "0"}});
    const at::ScalarType type = dtype == "float64" ? at::kDouble : at::kFloat;
    const TinyResult exact = run(keys, *world);
    const Tensor update = exact.global.to(type).sub(exact.initial.to(type));
    keys["algorithm.codec"] = GetParam();
    const TinyResult coded = run(keys, *world);

    const std::unique_ptr<Codec> codec = CodecChoice{.name = GetParam()}.make();
    const std::vector<std::byte> bytes = codec->encode(update);
    Tensor arrived = update.clone();
    codec->decode(bytes, arrived);
    const Tensor expected = exact.initial.to(type).add(arrived).to(at::kDouble);
    EXPECT_LT(distance(coded.global, expected), dtype == "float64" ? 1e-15 : 1e-7);
    EXPECT_EQ(coded.global.equal(exact.global), codec->lossless(type));
    if (world->rank() != 0) continue;
    const double up = coded.metrics.front().bytes_up_client_cloud;
    if (GetParam() == "bitmap" || GetParam() == "index_value" || GetParam() == "run_length" ||
        GetParam() == "kmeans") {
      // Rounding of the difference may hide or show a zero, or move a value to another cluster: the
      // size follows the update itself.
      EXPECT_NEAR(up, static_cast<double>(bytes.size()), 0.02 * static_cast<double>(bytes.size()));
    } else {
      EXPECT_EQ(up, static_cast<double>(bytes.size()));
    }
    EXPECT_EQ(coded.metrics.front().bytes_down_client_cloud,
              static_cast<double>(exact.global.numel() * (dtype == "float64" ? 8 : 4)));
  }
}

std::vector<std::string> codec_names() {
  std::vector<std::string> names;
  for (const auto& [name, sentence] : codec_registry()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryCodec, ::testing::ValuesIn(codec_names()),
                         [](const auto& one) { return one.param; });

TEST(SimulatedSeconds, OfAFlatRoundAreItsSlowestParticipants) {
  const auto world = world_communicator(60);
  const TinyResult result = run(tiny_keys({{"network.client_cloud_mbps", "2"},
                                           {"network.latency_ms", "30"},
                                           {"network.step_seconds", "0.25"}}),
                                *world);
  if (world->rank() != 0) return;
  // The largest client has 30 samples: two epochs of 8 batches of 4.
  const double payload = 8 * static_cast<double>(result.global.numel());
  const double expected = 2 * (0.03 + 8 * payload / 2e6) + 16 * 0.25;
  for (const RoundMetrics& metrics : result.metrics) {
    EXPECT_NEAR(metrics.simulated_seconds, expected, 1e-9);
  }
}

TEST(SimulatedSeconds, OfEdgeRoundsAddUp) {
  const auto world = world_communicator(60);
  const TinyResult result = run(tiny_keys({{"algorithm.name", "hierfavg"},
                                           {"algorithm.edge_rounds", "3"},
                                           {"topology.edges", "4"},
                                           {"train.local_epochs", "0"},
                                           {"train.local_steps", "5"},
                                           {"network.client_edge_mbps", "4"},
                                           {"network.edge_cloud_mbps", "8"},
                                           {"network.step_seconds", "0.5"}}),
                                *world);
  if (world->rank() != 0) return;
  const double bits = 64 * static_cast<double>(result.global.numel());
  const double edge_round = 2 * bits / 4e6 + 5 * 0.5;
  EXPECT_NEAR(result.metrics.back().simulated_seconds, 3 * edge_round + 2 * bits / 8e6, 1e-9);
}

TEST(SimulatedSeconds, AreUndefinedWithoutANetwork) {
  const auto world = world_communicator(60);
  const TinyResult result = run(tiny_keys(), *world);
  if (world->rank() == 0) {
    EXPECT_TRUE(std::isnan(result.metrics.back().simulated_seconds));
  }
}

}  // namespace
}  // namespace fedhpc::testing
