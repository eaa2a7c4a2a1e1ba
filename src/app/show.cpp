#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iomanip>
#include <optional>
#include <sstream>

#include "fedhpc/app/commands.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/data/dataset.hpp"
#include "fedhpc/engine/config.hpp"
#include "fedhpc/engine/resume.hpp"
#include "fedhpc/io/checkpoint_files.hpp"
#include "fedhpc/io/durable.hpp"
#include "fedhpc/io/hdf5.hpp"
#include "fedhpc/models/model_file.hpp"
#include "fedhpc/training/loss.hpp"

#include "app/configuration.hpp"

namespace fedhpc {

namespace {

std::string text_of(const Shape& shape) {
  std::string text;
  for (const std::int64_t length : shape) text += concat(text.empty() ? "" : " x ", length);
  return text;
}

/// Lines of words with columns as wide as their widest word; numbers stand on the right.
std::string aligned(const std::vector<std::vector<std::string>>& lines) {
  std::vector<std::size_t> widths(lines.front().size(), 0);
  for (const auto& line : lines) {
    for (std::size_t k = 0; k < line.size(); ++k) widths[k] = std::max(widths[k], line[k].size());
  }
  std::string text;
  for (const auto& line : lines) {
    std::ostringstream out;
    for (std::size_t k = 0; k < line.size(); ++k) {
      const bool number = k + 2 >= line.size();
      out << (k > 0 ? "  " : "") << (number ? std::right : std::left)
          << std::setw(static_cast<int>(widths[k])) << line[k];
    }
    const std::string padded = out.str();
    text += padded.substr(0, padded.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

/// The model of a configuration, or of a model file.
std::unique_ptr<Model> model_of(const Arguments& arguments) {
  if (!arguments.empty() && h5::is_hdf5(arguments.front()) == true) {
    if (arguments.size() > 1) {
      throw ConfigError(
          "fedhpc show model MODEL.h5 takes no keys: a model file says all of its model");
    }
    return build_model(read_model_file(arguments.front()), concat("'", arguments.front(), "'"));
  }
  const std::unique_ptr<Config> config = configuration_of(given_by(arguments, "show model"));
  const std::unique_ptr<Dataset> dataset = open_dataset(config->data);
  const Loss loss(config->train.loss, dataset->targets(), dataset->classes());
  ModelOptions of_rows = config->model;
  of_rows.type = scalar_type(config->run.dtype);
  return make_model(of_rows, dataset->shape(), loss.outputs());
}

/// Its layers line by line, or its parameters where it was made of no description.
std::string model_table(const Model& model) {
  std::vector<std::vector<std::string>> lines{
      {"layer", "kind", "values of a sample", "parameters", "operations a sample"}};
  for (const LayerSummary& layer : model.layers()) {
    lines.push_back({layer.name, layer.op, text_of(layer.shape),
                     layer.parameters > 0 ? concat(layer.parameters) : "",
                     layer.flops > 0 ? concat(std::llround(layer.flops)) : ""});
  }
  if (model.layers().empty()) {
    lines.front()[2] = "shape";
    for (const Field& field : model.layout()->fields()) {
      lines.push_back({field.name, "parameter", text_of(field.shape), concat(field.size), ""});
    }
  }
  lines.push_back(
      {"all", "", "", concat(model.layout()->size()), concat(std::llround(model.forward_flops()))});
  return aligned(lines);
}

/// How far the run of a result file has come, line by line: a name and what it is.
std::string run_table(const Arguments& arguments) {
  if (arguments.size() != 1) throw ConfigError("fedhpc show run takes one result file: RUN.h5");
  const std::string& path = arguments.front();
  const auto refuse = [&](const std::string& reason) -> DataError {
    return DataError(
        concat("'", path, "' cannot be shown: ", reason, "; give a result file RUN.h5"));
  };
  try {
    h5::check_input(path);
  } catch (const Error& error) {
    throw refuse(error.what());
  }
  const std::optional<RunStatus> run = status_of_run(path);
  if (!run) throw refuse("it is damaged");
  if (run->started == RunStatus::kForeign) throw refuse("fedhpc has not written it");
  std::ostringstream lines;
  // Who writes it now cannot be told from who was killed as it did.
  const bool ended = run->closed && run->status != "running";
  lines << "status " << (ended ? run->status : "running or killed") << '\n'
        << "rounds " << run->rounds << '\n'
        << "started " << run->started.substr(0, run->started.find(',')) << '\n';
  const std::vector<CheckpointFile> checkpoints = checkpoints_of(link_target(path));
  if (!checkpoints.empty()) lines << "checkpoint " << checkpoints.front().path << '\n';
  return lines.str();
}

/// The whole configuration as a result file would have it, or the value of one key.
std::string configuration_text(const Arguments& arguments) {
  Arguments of_run = arguments;
  std::optional<std::string> key;
  if (of_run.size() > 1 && !of_run[1].starts_with("--")) {
    key = of_run[1];
    of_run.erase(of_run.begin() + 1);
  }
  // Not its files and GPUs: a job is prepared on a machine that may have neither.
  const Given given = given_by(of_run, "show config");
  const Config config(given.assignments, given.name);
  if (!key) return config.to_ini();
  const OptionSet& options = config.options();
  if (!options.contains(*key)) {
    std::vector<std::string> keys;
    for (const OptionSet::Entry& entry : options.entries()) keys.push_back(entry.key);
    throw ConfigError(
        concat("this configuration has no key '", *key, "'", suggestion(likely_key(*key, keys))));
  }
  const OptionSet::Entry& entry = options.entry(*key);
  const std::string value = entry.print();
  if (!options.acts(entry) || value.empty()) {
    throw ConfigError(concat("key '", *key,
                             options.acts(entry) ? "' is not set" : "' has no effect",
                             " in this configuration"));
  }
  return value + "\n";
}

}  // namespace

int show_command(const Arguments& arguments) {
  const std::string what = arguments.empty() ? "" : arguments.front();
  if (what != "model" && what != "config" && what != "run") {
    throw ConfigError(
        "fedhpc show takes what to show: fedhpc show model CONFIG.ini, or a model file; "
        "fedhpc show config CONFIG.ini; fedhpc show run RUN.h5");
  }
  const Arguments rest(arguments.begin() + 1, arguments.end());
  const std::string text = what == "run"      ? run_table(rest)
                           : what == "config" ? configuration_text(rest)
                                              : model_table(*model_of(rest));
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace fedhpc
