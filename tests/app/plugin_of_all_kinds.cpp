// A plug-in that does what FEDHPC_TEST_PLUGIN says, and leaves a file behind as soon as it is loaded.

#include <cstdlib>
#include <fedhpc/algorithms/factor_averaging.hpp>
#include <fedhpc/plugin.hpp>
#include <fstream>
#include <stdexcept>
#include <string>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

namespace {

using namespace fedhpc;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

const bool kLoaded = [] {
  const std::string witness = variable("FEDHPC_TEST_PLUGIN_WITNESS");
  if (!witness.empty()) std::ofstream(witness) << "loaded";
  return true;
}();

void add_model(Plugin& plugin, const std::string& name, const std::string& sentence) {
  plugin.add_model(name, sentence,
                   [](const ModelOptions& options, const auto& shape, auto classes) {
                     return model_registry().find("dnn", "model.name")(options, shape, classes);
                   });
}

/// Averages factors of a kind that a plug-in has added.
class TestAveraging final : public FactorAveraging {
 public:
  TestAveraging() : FactorAveraging({"test_factors"}) {}
};

void add_all_kinds(Plugin& plugin) {
  add_model(plugin, "test_model", "a dnn of another name");
  plugin.add_dataset("test_data", "what synthetic is", [](const DataOptions& options) {
    return dataset_registry().find("synthetic", "data.name")(options);
  });
  plugin.add_partitioner(
      "test_partition", "what iid is", [](const DataOptions& options, const Dataset& dataset) {
        return partitioner_registry().find("iid", "data.partition")(options, dataset);
      });
  plugin.add_codec("test_codec", "what fp16 is", [](const CodecChoice&) {
    CodecChoice half;
    half.name = "fp16";
    return half.make();
  });
  plugin.add_factorisation(
      "test_factors", "what cp is",
      [](const WeightShape& shape, const FactorSize& size, const FactorForm& form) {
        return make_factorisation("cp", shape, size, form);
      });
  plugin.add_algorithm<TestAveraging>("test_averaging", "averages test_factors");
}

/// A method that fails where the variable says.
class Fails final : public Algorithm {
 public:
  Fails() {
    if (variable("FEDHPC_TEST_PLUGIN") == "constructor") throw std::runtime_error("no such luck");
    if (variable("FEDHPC_TEST_PLUGIN") == "constructor number") throw 7;
  }
  Traits traits() const override {
    if (variable("FEDHPC_TEST_PLUGIN") == "traits") throw std::runtime_error("no such luck");
    return {.tiers = edges_ ? Tiers::ClientEdgeCloud : Tiers::ClientCloud};
  }
  void declare(OptionSet& options) override {
    averaging_.declare(options);
    options.add("algorithm.with_edges", edges_, "whether edges have models");
  }
  void initialise(const Setup& setup) override {
    if (variable("FEDHPC_TEST_PLUGIN") == "initialise number") throw 7;
    global_ = setup.initial_model();
    codec_ = averaging_.links.open(setup, global_);
  }
  void round(Round& round) override {
    if (round.number() < 2) return;
    if (variable("FEDHPC_TEST_PLUGIN") == "note") round.note("nothing", 1);
    round.each_block([](Block& block) {
      for (const std::int64_t client : block.clients()) {
        if (client == 3) throw "text";
      }
    });
  }
  void evaluate(Evaluation& evaluation) override { evaluation.global(global_); }
  void visit_state(StateVisitor& state) override { state.rows("global", global_); }

 private:
  AveragingOptions averaging_;
  bool edges_ = false;
  std::unique_ptr<Codec> codec_;
  Rows global_;
};

/// What makes nothing.
void add_nulls(Plugin& plugin) {
  plugin.add_dataset("null_data", "no data", [](const DataOptions&) { return nullptr; });
  plugin.add_model("null_model", "no model",
                   [](const ModelOptions&, const auto&, auto) { return nullptr; });
  plugin.add_codec("null_codec", "no codec", [](const CodecChoice&) { return nullptr; });
}

/// A data set whose samples have a label that it has not.
class WrongLabel final : public Dataset {
 public:
  std::vector<std::int64_t> shape() const override { return {2}; }
  std::int64_t classes() const override { return 3; }
  std::int64_t num_train() const override { return 120; }
  std::int64_t num_test() const override { return 0; }
  std::vector<std::int64_t> labels() const override { return std::vector<std::int64_t>(120, 2); }
  Samples read(std::span<const std::int64_t> ids) const override {
    const auto count = static_cast<std::int64_t>(ids.size());
    return {at::zeros({count, 2}, at::kDouble), at::full({count}, 3, at::kLong)};
  }
};

void add_wrong(Plugin& plugin) {
  plugin.add_algorithm<Fails>("fails", "fails where a variable says");
  plugin.add_dataset("wrong_label", "one label too many",
                     [](const DataOptions&) { return std::make_unique<WrongLabel>(); });
  plugin.add_partitioner(
      "wrong_samples", "one sample too many", [](const DataOptions& options, const Dataset& data) {
        Partition partition = partitioner_registry().find("iid", "data.partition")(options, data);
        partition.train.samples.back() = data.num_train() + data.num_test();
        return partition;
      });
  add_nulls(plugin);
}

}  // namespace

FEDHPC_PLUGIN(plugin) {
  const std::string wanted = variable("FEDHPC_TEST_PLUGIN");
  if (wanted == "all") add_all_kinds(plugin);
  add_wrong(plugin);
  if (wanted == "own name") add_model(plugin, "mlr", "one that is there");
  if (wanted == "no word") add_model(plugin, "a model", "one of two words");
  if (wanted == "no sentence") add_model(plugin, "a_model", "");
  if (wanted == "twice") {
    add_model(plugin, "a_model", "the first");
    add_model(plugin, "a_model", "the second");
  }
  if (wanted == "empty") plugin.add_partitioner("a_partitioner", "one without a function", {});
  if (wanted == "exception") throw std::runtime_error("no such luck");
  if (wanted == "number") throw 7;
}
