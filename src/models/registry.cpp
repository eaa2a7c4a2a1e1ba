#include <numeric>

#include "fedhpc/models/model.hpp"

namespace fedhpc {

namespace {

using Layers = std::vector<std::unique_ptr<Layer>>;

std::int64_t product(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

/// fc1 ... fcn with ReLU between them.
std::unique_ptr<Model> fully_connected(const std::vector<std::int64_t>& shape,
                                       std::vector<std::int64_t> outputs) {
  Layers layers;
  std::int64_t in = product(shape);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const bool last = i + 1 == outputs.size();
    layers.push_back(std::make_unique<Linear>(concat("fc", i + 1), in, outputs[i],
                                              last ? Tag::Head : Tag::None));
    if (!last) layers.push_back(std::make_unique<Relu>());
    in = outputs[i];
  }
  return std::make_unique<Model>(product(shape), std::move(layers));
}

std::unique_ptr<Model> make_mlr(const ModelOptions&, const std::vector<std::int64_t>& shape,
                                std::int64_t classes) {
  return fully_connected(shape, {classes});
}

std::unique_ptr<Model> make_dnn(const ModelOptions& options, const std::vector<std::int64_t>& shape,
                                std::int64_t classes) {
  constexpr std::int64_t kWidest = std::int64_t{1} << 24;
  std::vector<std::int64_t> outputs = options.hidden;
  for (const std::int64_t width : outputs) {
    if (width > kWidest) {
      throw ConfigError(
          concat("model.hidden = ", width, " is too wide; allowed: at most ", kWidest));
    }
  }
  outputs.push_back(classes);
  return fully_connected(shape, std::move(outputs));
}

}  // namespace

const std::vector<std::pair<std::string, std::string>>& model_registry() {
  static const std::vector<std::pair<std::string, std::string>> registry = {
#define FEDHPC_MODEL(id, builder, sentence) {#id, sentence},
#include "models/models.def"
#undef FEDHPC_MODEL
  };
  return registry;
}

std::unique_ptr<Model> make_model(const ModelOptions& options,
                                  const std::vector<std::int64_t>& shape, std::int64_t classes) {
#define FEDHPC_MODEL(id, builder, sentence) \
  if (options.name == #id) return builder(options, shape, classes);
#include "models/models.def"
#undef FEDHPC_MODEL
  throw ConfigError(concat("model.name: no model '", options.name, "'"));
}

void ModelOptions::declare(OptionSet& options) {
  std::vector<std::string> names;
  for (const auto& [known, sentence] : model_registry()) names.push_back(known);
  options.add_choice("model.name", name, names, "model family (fedhpc list models)");
  options.add("model.hidden", hidden, "dnn: widths of the hidden layers");
  options.add("model.init_file", init_file,
              "result file whose /model/init (else /model/global) holds the initial weights",
              "the path of an HDF5 file");
}

}  // namespace fedhpc
