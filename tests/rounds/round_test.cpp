#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/codecs/codec.hpp"
#include "fedhpc/comm/session.hpp"
#include "fedhpc/engine/experiment.hpp"
#include "fedhpc/models/model.hpp"
#include "fedhpc/rounds/link_memory.hpp"

#include "fixtures/resumed_run.hpp"
#include "fixtures/tiny_run.hpp"

// What a round books on the simulated network, through whole runs.
namespace fedhpc::testing {
namespace {

/// Of a client's upload in round 1 of tiny_keys(keys): each weight and bias is a tensor.
PayloadFit fit_of(std::int64_t client, const Keys& keys) {
  ModelOptions options;
  options.name = "dnn";
  options.hidden = {6};
  ColumnRanges tensors;
  std::vector<std::int64_t> heights;
  const LayoutPtr layout = make_model(options, {8}, 4)->layout();
  for (const Field& field : layout->fields()) {
    tensors.push_back({field.offset, field.offset + field.size});
    heights.push_back(field.shape.size() == 2 ? field.shape[0] : 1);
  }
  const LinkDraws draws{.seed = std::stoull(keys.at("run.seed")), .round = 1};
  return {.tensors = tensors, .heights = heights, .seed = draws.of(Direction::Up, client, 0)};
}

class EveryCodec : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryCodec, IsBookedWithTheBytesItEncodes) {
  // One client, one round of full-batch steps: its update is the difference of the two models, and
  // what arrives is the update decoded. The seed draws the client of the most samples: an update of
  // few has a low rank, which PowerSGD sends whole.
  const auto world = world_communicator(60);
  for (const std::string dtype : {"float64", "float32"}) {
    Keys keys = tiny_keys({{"run.rounds", "1"},
                           {"run.seed", "4"},
                           {"run.dtype", dtype},
                           {"topology.participation", "0.01"},
                           {"train.batch_size", "0"}});
    const at::ScalarType type = dtype == "float64" ? at::kDouble : at::kFloat;
    const TinyResult exact = run(keys, *world);
    const Tensor update = exact.global.to(type).sub(exact.initial.to(type));
    keys["algorithm.codec"] = GetParam();
    const TinyResult coded = run(keys, *world);

    std::unique_ptr<Codec> codec = CodecChoice{.name = GetParam()}.make();
    const std::vector<std::int64_t> clients = coded.cohorts.at(0);
    ASSERT_EQ(clients.size(), 1);
    std::unique_ptr<Codec> compressor = codec->fitted(fit_of(clients[0], keys));
    // It divides by a norm of the difference, which is rounded.
    const double factor = compressor != nullptr ? 10 : 1;
    if (compressor != nullptr) codec = std::move(compressor);
    const std::vector<std::byte> bytes = codec->encode(update);
    Tensor arrived = update.clone();
    codec->decode(bytes, arrived);
    const Tensor expected = exact.initial.to(type).add(arrived).to(at::kDouble);
    EXPECT_LT(distance(coded.global, expected), factor * (dtype == "float64" ? 1e-15 : 1e-7));
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

INSTANTIATE_TEST_SUITE_P(Registry, EveryCodec, ::testing::ValuesIn(codec_registry().names()),
                         [](const auto& one) { return one.param; });

/// A method of one global model.
class OneModel : public Algorithm {
 public:
  void declare(OptionSet&) override {}
  void initialise(const Setup& setup) override { global_ = setup.initial_model(); }
  void evaluate(Evaluation& evaluation) override { evaluation.global(global_); }
  void visit_state(StateVisitor& state) override { state.rows("global", global_); }

 protected:
  Rows global_;
};

/// A method that asks a block for weights of one kind while it holds those of another.
class AsksTwice final : public OneModel {
 public:
  void round(Round& round) override {
    round.each_block([](Block& block) {
      const std::span<const double> uniform = block.weights(Weighting::Uniform);
      const std::vector<double> before(uniform.begin(), uniform.end());
      block.weights(Weighting::Samples);
      EXPECT_EQ(std::vector<double>(uniform.begin(), uniform.end()), before);
    });
  }
};

TEST(Weights, OfOneKindStayWhenAnotherIsAskedFor) {
  algorithm_registry().add("asks_twice", "a method of this test",
                           [] { return std::make_unique<AsksTwice>(); });
  run(tiny_keys({{"algorithm.name", "asks_twice"}, {"train.block", "4"}}), *world_communicator(60));
}

void note_own_numbers(Block& block) {
  block.note("number", std::vector<double>(block.clients().begin(), block.clients().end()));
}

/// A method whose second pass through a round uses what its first one has noted.
class NotesFirst final : public OneModel {
 public:
  void initialise(const Setup& setup) override {
    OneModel::initialise(setup);
    setup.add_metrics({{"number", "1", "of a client"}});
  }
  void round(Round& round) override {
    round.each_block(note_own_numbers);
    const double mean = round.noted("number");
    Mean second = round.mean(global_.layout);
    round.each_block([&](Block& block) {
      second.add(block.weights(Weighting::Uniform), block.download(global_));
    });
    global_.values.mul_(0.5).add_(second.reduce().values, 0.25).add_(mean);
  }
};

TEST(Notes, AreKnownInARoundThatGoesOn) {
  algorithm_registry().add("notes_first", "a method of this test",
                           [] { return std::make_unique<NotesFirst>(); });
  const auto world = world_communicator(60);
  const Keys keys = tiny_keys({{"algorithm.name", "notes_first"},
                               {"topology.participation", "1"},
                               {"run.rounds", "2"},
                               {"run.grace_seconds", "0"},
                               {"train.block", "1"}});
  int left = 0;
  const TinyResult parts = run_left_in_rounds(keys, *world, left);
  EXPECT_TRUE(parts.global.equal(run(keys, *world).global));
  EXPECT_GT(left, 2);
}

class NotesTwice final : public OneModel {
 public:
  void initialise(const Setup& setup) override {
    OneModel::initialise(setup);
    setup.add_metrics({{"number", "1", "of a client, and of a round"}});
  }
  void round(Round& round) override {
    round.note("number", 7);
    round.each_block(note_own_numbers);
  }
};

TEST(Notes, AreOfARoundOrOfItsParts) {
  algorithm_registry().add("notes_twice", "a method of this test",
                           [] { return std::make_unique<NotesTwice>(); });
  const auto world = world_communicator(60);
  EXPECT_THROW(run(tiny_keys({{"algorithm.name", "notes_twice"}}), *world), std::exception);
}

/// A method that notes, or asks for, a series that it has not added.
class NotesUnknown final : public OneModel {
 public:
  explicit NotesUnknown(std::function<void(Round&)> note) : note_(std::move(note)) {}
  void initialise(const Setup& setup) override {
    OneModel::initialise(setup);
    setup.add_metrics(quantiles_of("number", "1", "of a client"));
  }
  void round(Round& round) override { note_(round); }

 private:
  std::function<void(Round&)> note_;
};

TEST(Notes, AreOfSeriesThatWereAdded) {
  const auto world = world_communicator(60);
  const auto refused = [&](const std::function<void(Round&)>& note) {
    algorithm_registry().add("notes_unknown", "a method of this test",
                             [note] { return std::make_unique<NotesUnknown>(note); });
    try {
      run(tiny_keys({{"algorithm.name", "notes_unknown"}}), *world);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string expected =
      "a value is noted of the series 'numbers', which the method has not added; did you mean "
      "'number'?";
  EXPECT_EQ(refused([](Round& round) { round.each_block(note_own_numbers); }), "");
  EXPECT_EQ(refused([](Round& round) { round.note("numbers", 7); }), expected);
  EXPECT_EQ(refused([](Round& round) { round.noted("numbers"); }), expected);
  if (world->size() > 1) return;  // where a rank has no clients it would wait for the others
  EXPECT_EQ(refused([](Round& round) {
              round.each_block([](Block& block) {
                block.note("numbers", std::vector<double>(block.clients().size()));
              });
            }),
            expected);
}

void expect_seconds_of_every_round(const TinyResult& result, double expected) {
  for (const RoundMetrics& metrics : result.metrics) {
    EXPECT_NEAR(metrics.simulated_seconds, expected, 1e-9);
  }
}

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
  expect_seconds_of_every_round(result, expected);
}

TEST(SimulatedSeconds, AreOfTheSlowestOfClientsThatDiffer) {
  const auto world = world_communicator(60);
  // Clients 0, 2, 4, 6 have one device, clients 1, 3, 5 another; 3 has no samples. Steps: 2 epochs.
  const Keys keys = tiny_keys({{"network.client_cloud_mbps", "2,0.5"},
                               {"network.step_seconds", "0.25,1.5"},
                               {"topology.placement", "balanced"}});
  const TinyResult result = run(keys, *world);
  Config config(assignments_of(keys), "tiny.ini");
  const Experiment experiment(config, *world);
  double expected = 0;
  const double payload = 8 * static_cast<double>(result.initial.numel());
  for (std::int64_t client = 0; client < 7; ++client) {
    const auto steps = static_cast<double>(experiment.parts().steps_of(client));
    const bool odd = client % 2 == 1;
    expected =
        std::max(expected, 2 * 8 * payload / (odd ? 0.5e6 : 2e6) + steps * (odd ? 1.5 : 0.25));
  }
  if (world->rank() != 0) return;
  expect_seconds_of_every_round(result, expected);
}

TEST(SimulatedSeconds, OfStragglersAreThoseOfTheStepsTheyTake) {
  const auto world = world_communicator(60);
  const Keys keys = tiny_keys({{"train.stragglers", "0.9"},
                               {"network.step_seconds", "1"},
                               {"topology.placement", "balanced"},
                               {"run.rounds", "6"}});
  const TinyResult result = run(keys, *world);
  Config config(assignments_of(keys), "tiny.ini");
  const Experiment experiment(config, *world);
  if (world->rank() != 0) return;
  double all = 0;
  for (std::int64_t t = 1; t <= 6; ++t) {
    double expected = 0;
    for (std::int64_t client = 0; client < 7; ++client) {
      const std::int64_t steps = experiment.parts().steps_of(client);
      const Stragglers& stragglers = experiment.parts().trainer->stragglers();
      expected = std::max(expected, static_cast<double>(stragglers.steps(steps, client, t)));
    }
    EXPECT_EQ(result.metrics[static_cast<std::size_t>(t - 1)].simulated_seconds, expected);
    all += expected;
  }
  EXPECT_LT(all, 6 * 16) << "the largest client was late in some round";
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

/// What the slowest participant of a first round does, by method: gradients where a local training
/// has 5 steps, and payloads.
struct Work {
  double gradients = 5;
  double payloads = 2;
};
const std::map<std::string, Work>& work_of_methods() {
  static const std::map<std::string, Work> work{
      {"dsgd", {}},
      {"apfl", {.gradients = 5 + 5}},   // of w_i and of the mixture
      {"ditto", {.gradients = 5 + 5}},  // of the global and of the personal model
      {"ef21p", {}},
      {"fedala", {}},  // weights are learned from the second time on
      {"fedamp", {}},
      {"fedavg", {}},
      {"fedavg_ft", {.gradients = 5 + 5}},  // fine-tuning and training
      {"fedbabu", {}},
      {"fedbat", {}},
      {"fedbn", {}},
      {"fedcomloc", {.gradients = 1}},                  // p = 1
      {"feddecomp", {.gradients = 2 * 5 + 3 * 5}},      // of the own part and of the shared one
      {"feddwa", {.gradients = 5 + 5, .payloads = 3}},  // of a guidance model, sent as well
      {"feddyn", {}},
      {"fedhm", {}},
      {"fedlmt", {}},
      {"fedmud", {}},                // the seed travels with the factors
      {"fednova", {.payloads = 3}},  // the number of its steps travels as well
      {"fedpara", {}},
      {"fedper", {}},
      {"fedprox", {}},
      {"fedprox_ft", {.gradients = 5 + 5}},
      {"fedrep", {.gradients = 2 * 5 + 5}},  // of the head, twice, and of the body
      {"fedselect", {.payloads = 3}},        // the mask travels as well; nothing is personal yet
      {"heurfedamp", {}},
      {"hierfavg", {.gradients = 3 * 5, .payloads = 3 * 2 + 2}},  // edge rounds, then the cloud
      {"lg_fedavg", {}},
      {"localonly", {.payloads = 0}},
      {"lora", {}},
      {"moon", {}},                         // its further passes are forward alone
      {"perfedavg", {.gradients = 5 * 4}},  // w, w_hat, and two for the curvature
      {"pfedgp", {}},
      {"pfedgraph", {}},
      {"pfedme", {.gradients = 5 * 6}},  // K on every batch
      {"pfedsop", {}},
      {"scaffold", {.payloads = 4}},  // models and control variates
      {"sfedhp", {.gradients = 3 * 5 * 6, .payloads = 3 * 2 + 2}},
      {"simnet", {}},
      {"tdpfed", {.gradients = 5 * 6}},  // the steps of the factors see no data
  };
  return work;
}

class SimulatedSecondsOf : public ::testing::TestWithParam<std::string> {};

TEST_P(SimulatedSecondsOf, CountEveryGradientOfABatchAndEveryPayload) {
  ASSERT_TRUE(work_of_methods().contains(GetParam())) << "say what the method does in a round";
  const auto world = world_communicator(60);
  Keys keys = tiny_keys_of(GetParam(), {{"run.rounds", "1"},
                                        {"train.local_epochs", "0"},
                                        {"train.local_steps", "5"},
                                        {"train.block", "3"},
                                        {"network.latency_ms", "1"},
                                        {"network.step_seconds", "0.25"}});
  const Keys settings{{"algorithm.edge_rounds", "3"},
                      {"algorithm.head_passes", "2"},
                      {"algorithm.probability", "1"},
                      {"algorithm.inner_steps", "6"},
                      {"algorithm.variant", "hf"}};
  for (const auto& [key, value] : settings) {
    if (has_key(GetParam(), key)) keys[key] = value;
  }
  const TinyResult result = run(keys, *world);
  if (world->rank() != 0) return;
  const Work work = work_of_methods().at(GetParam());
  EXPECT_NEAR(result.metrics[0].simulated_seconds, 0.25 * work.gradients + 1e-3 * work.payloads,
              1e-9);
}

INSTANTIATE_TEST_SUITE_P(Registry, SimulatedSecondsOf, ::testing::ValuesIn(algorithm_names()),
                         [](const auto& one) { return one.param; });

TEST(SimulatedSeconds, OfClientsThatStopEarlyAreTheirOwn) {
  // Whoever shares a block with them goes on.
  const auto world = world_communicator(60);
  Keys keys = tiny_keys_of("sfedhp", {{"algorithm.inner_steps", "12"},
                                      {"algorithm.accuracy", "0.01"},
                                      {"network.step_seconds", "1"}});
  const TinyResult narrow = run(keys, *world);
  keys["train.block"] = "8";
  const TinyResult wide = run(keys, *world);
  keys["algorithm.accuracy"] = "0";
  const TinyResult patient = run(keys, *world);
  if (world->rank() != 0) return;
  for (std::size_t t = 0; t < narrow.metrics.size(); ++t) {
    EXPECT_EQ(wide.metrics[t].simulated_seconds, narrow.metrics[t].simulated_seconds);
    EXPECT_EQ(patient.metrics[t].simulated_seconds, 3 * 16 * 12) << "client 6: 2 epochs of 8";
    EXPECT_LT(wide.metrics[t].simulated_seconds, patient.metrics[t].simulated_seconds);
  }
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
