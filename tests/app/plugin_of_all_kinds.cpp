// A plug-in that does what FEDHPC_TEST_PLUGIN says, and leaves a file behind as soon as it is loaded.

#include <cstdlib>
#include <fedhpc/plugin.hpp>
#include <fstream>
#include <stdexcept>
#include <string>

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
}

}  // namespace

FEDHPC_PLUGIN(plugin) {
  const std::string wanted = variable("FEDHPC_TEST_PLUGIN");
  if (wanted == "all") add_all_kinds(plugin);
  if (wanted == "own name") add_model(plugin, "mlr", "one that is there");
  if (wanted == "no word") add_model(plugin, "a model", "one of two words");
  if (wanted == "no sentence") add_model(plugin, "a_model", "");
  if (wanted == "twice") {
    add_model(plugin, "a_model", "the first");
    add_model(plugin, "a_model", "the second");
  }
  if (wanted == "exception") throw std::runtime_error("no such luck");
  if (wanted == "number") throw 7;
}
