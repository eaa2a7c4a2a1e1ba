// The model of a run, and the weights and factors that it starts from.

#include <algorithm>
#include <cmath>
#include <set>

#include <ATen/ops/isfinite.h>

#include "fedhpc/core/log.hpp"
#include "fedhpc/engine/checkpoint.hpp"
#include "fedhpc/engine/metrics.hpp"
#include "fedhpc/engine/model_record.hpp"
#include "fedhpc/engine/parts.hpp"
#include "fedhpc/models/model_file.hpp"
#include "fedhpc/training/local_steps.hpp"

#include "core/digest.hpp"

namespace fedhpc {

namespace {

/// Every step from weights that are not numbers would be NaN. Large ones of float64 are infinite in
/// float32.
void check_finite(const Rows& row, const char* key, const std::string& path) {
  for (const NamedTensor& one : parameters_of(row)) {
    const bool finite = at::isfinite(one.values).all().item<bool>();
    const bool variance = one.name.ends_with("running_var");
    if (finite && !(variance && one.values.lt(0).any().item<bool>())) continue;
    throw DataError(
        concat(key, " '", path, "': '", one.name, "' has values that are ",
               finite ? "below 0, and it is a variance" : "NaN, or infinite with this run.dtype",
               "; take other weights"));
  }
}

/// A model file's own parameters are in no layer whose kind says how to draw them. Left at 0, two
/// of them that are multiplied would never learn.
void check_drawable(const Layout& layout, const std::string& file) {
  for (const Field& field : layout.fields()) {
    if (field.initial != Initial::Given) continue;
    throw ConfigError(concat("parameter '", field.name, "' of model.file '", file,
                             "' has no rule of drawing; export the model with its weights, or set ",
                             "model.init_file"));
  }
}

/// Numbers that are standardised name no rows of an embedding. Real ones stay as they are by `unit`.
void check_row_numbers(const Config& config, const Dataset& dataset) {
  const OptionSet& options = config.options();
  const Standardize rule = config.data.standardize;
  const bool sequences = options.acts(options.entry("model.vocabulary"));
  if (!sequences || rule == Standardize::None) return;
  const std::vector<std::int64_t> first = {0};
  const bool bytes = dataset.read(first).features.scalar_type() == at::kByte;
  if (rule == Standardize::Unit && !bytes) return;
  throw ConfigError(concat(
      "model.name = ", config.model.name,
      " takes whole numbers, and data.standardize = ", options.entry("data.standardize").print(),
      " makes others of these; set data.standardize = none"));
}

/// Local steps are the more epochs, the fewer samples a client has.
void refuse_lost_epochs(const Config& config, const Layout& layout, const Partition& partition) {
  if (config.train.lr_unit != LrUnit::Epoch) return;
  std::int64_t most = 0, first = 0;
  for (std::int64_t client = 0; client < partition.clients(); ++client) {
    const auto epochs = epochs_of_steps(config.train, layout, partition.train.count(client));
    if (epochs > most) first = client;
    most = std::max(most, epochs);
  }
  const std::int64_t trainings = config.run.rounds * config.algorithm->traits().trainings_in_round;
  refuse_early_end(config.train, config.options(), trainings * most, concat(" of client ", first));
}

/// Binary cross entropy takes outputs as logits; behind a sigmoid all are above 0, as of a label that
/// is there.
void refuse_squeezed_outputs(const Config& config, const Model& model, const Loss& loss) {
  if (loss.kind() != LossKind::BinaryCrossEntropy) return;
  const std::vector<LayerSummary>& layers = model.layers();  // none of TorchScript
  const auto last = std::find_if(layers.rbegin(), layers.rend(),
                                 [](const LayerSummary& one) { return one.op != "reshape"; });
  if (last == layers.rend() || last->op != "sigmoid") return;
  throw ConfigError(
      concat("model.name = ", config.model.name,
             " ends in a sigmoid, which train.loss = binary_cross_entropy has itself; "
             "take a model without it, such as mlr"));
}

}  // namespace

void Parts::open_model(const Resumption* from) {
  loss = Loss(config.train.loss, dataset->targets(), dataset->classes());
  if (method().traits().reads_labels && !loss.of_labels()) {
    throw ConfigError(
        concat("algorithm.name = ", config.algorithm_name,
               " reads one class label of each sample, and data.name = ", config.data.name,
               " with this train.loss has none; use another method"));
  }
  ModelOptions of_rows = config.model;
  of_rows.type = context.type;
  model = make_model(of_rows, dataset->shape(), loss.outputs());
  check_row_numbers(config, *dataset);
  digests.model = digest_of_model_file(config.model);
  const std::int64_t asked = loss.outputs().classes;
  loss = loss.of_outputs(model->classes());
  loss.check_shape(model->output_shape());
  refuse_squeezed_outputs(config, *model, loss);
  if (loss.outputs().classes > asked) {
    run_log().of_run(LogLevel::Warning, concat("the model tells ", loss.outputs().classes,
                                               " classes apart, and the data has ", asked,
                                               ": is its last layer the one of its classes?"));
  }
  if (method().traits().reads_embeddings && !model->has_embedding()) {
    throw ConfigError(concat("algorithm.name = ", config.algorithm_name,
                             " works on what the head of a model sees, "
                             "which cannot be told in model.name = ",
                             config.model.name,
                             config.model.by_autograd() ? " with model.backend = autograd" : "",
                             "; take another model or method"));
  }
  const LayoutPtr& layout = model->layout();
  const bool given = open_weights(from);
  if (given) {
    Digest digest;
    digest.add(initial.values.const_data_ptr(), initial.values.nbytes());
    weights_digest = digest.text();
  }
  if (!config.factorisation.factorises()) return;
  factor_map = std::make_unique<FactorMap>(config.factorisation, layout, context.summation);
  const FactorDraw draw = method().traits().factor_draw;
  initial_factors = factor_map->initial(initial, context.seed, draw);
  // A checkpoint that does not hold the initial factors holds those of its round.
  const bool saved = from != nullptr && from->holds_initial_model;
  const std::string& file = saved ? from->checkpoint : config.model.init_file;
  const bool read = !file.empty() && !draw.always &&
                    read_initial_factors_(file, initial_factors,
                                          saved ? InitState::Initial : config.model.init_state);
  if (read && !saved) check_finite(initial_factors, "model.init_file", file);
  // Factors that make the weights 0 are those of an update of the weights that are given.
  if (!given || read || draw.zero || draw.to_be_fitted) return;
  run_log().of_run(
      LogLevel::Warning,
      concat("algorithm.name = ", config.algorithm_name, " begins with factors, and ",
             config.model.key_of_weights(), " has none: those of ", factor_map->layers(),
             " layers are drawn, and only the other parameters ", "are the file's"));
}

void Parts::open_privacy() {
  const PrivacyOptions& options = config.privacy;
  if (!options.on()) return;
  if (model->layout()->count(Tag::Buffer) > 0 && !buffers && method().traits().sends_buffers) {
    const OptionSet& set = config.options();
    const bool may_stay = set.acts(set.entry("train.buffers"));
    set.refuse("privacy.clip",
               concat("batch norm's statistics of samples travelling as they are; use ",
                      may_stay ? "train.buffers = local, or " : "", "a norm without them"));
  }
  privacy.emplace(options, context.seed, method().traits().averaged_uploads);
  for (const Metric& metric : privacy->metrics()) {
    own_metrics.push_back(metric);
    noted.insert(metric.name);
  }
  if (!privacy->has_noise()) return;
  // Several payloads of a round are one release of them together, which is as much longer.
  const auto uploads = static_cast<double>(method().traits().averaged_uploads);
  accountant.emplace(static_cast<double>(cohort_mean()) / static_cast<double>(partition.clients()),
                     options.noise / std::sqrt(uploads), options.delta);
  if (options.delta * static_cast<double>(partition.clients()) < 1) return;
  run_log().of_run(LogLevel::Warning,
                   concat("privacy.delta = ", options.delta, " is not below 1 over ",
                          partition.clients(), " clients: epsilon says little"));
}

void Parts::require_different_series() const {
  std::set<std::string> names{"round"};
  for (const Metric& metric : metric_table()) names.insert(metric.name);
  for (const Metric& metric : own_metrics) {
    const bool hdf5_place = metric.name == "." || metric.name == "..";
    if (metric.name.empty() || hdf5_place ||
        metric.name.find_first_of("/ \t\n") != std::string::npos) {
      throw ConfigError(concat("algorithm.name = ", config.algorithm_name, " has a series '",
                               metric.name, "'; its name has to be one word"));
    }
    if (metric.quantile && !(0 <= *metric.quantile && *metric.quantile <= 1)) {
      throw ConfigError(concat("algorithm.name = ", config.algorithm_name, " has a series '",
                               metric.name, "' of quantile ", *metric.quantile,
                               "; a quantile lies in 0..1"));
    }
    if (names.insert(metric.name).second) continue;
    throw ConfigError(concat("algorithm.name = ", config.algorithm_name, " has a series '",
                             metric.name, "', and there is one of that name already; the method ",
                             "has to give it another name"));
  }
}

void Parts::check_steps() const {
  if (trainer->stragglers().stay_away() && most_together() <= 1) {
    run_log().of_run(LogLevel::Warning,
                     concat("train.stragglers leaves nobody out: a round has one participant",
                            has_edge_models() ? " at each edge" : "", ", who always stays"));
  }
  std::int64_t most = 0, idle = 0;
  for (std::int64_t client = 0; client < partition.clients(); ++client) {
    most = std::max(most, steps_of(client));
    if (steps_of(client) == 0 && partition.train.count(client) > 0) ++idle;
  }
  config.train.refuse_idle_stragglers(config.options(), most);
  refuse_lost_epochs(config, *model->layout(), partition);
  if (idle == 0) return;
  run_log().of_run(
      LogLevel::Warning,
      concat(idle, " of ", partition.clients(), " clients have only batches of one sample, ",
             "on which batch norm takes no step: they never train, and weigh in means"));
}

bool Parts::open_weights(const Resumption* from) {
  const LayoutPtr& layout = model->layout();
  if (from != nullptr && from->holds_initial_model) {
    initial = read_initial_model("checkpoint", from->checkpoint, layout, context.type);
    return false;
  }
  std::string file = config.model.file_of_weights();
  if (model->weights_of_file().defined() && config.model.init_file.empty()) {
    initial = {model->weights_of_file().to(context.type), layout};
    check_finite(initial, "model.file", config.model.file);
    return true;
  }
  if (config.model.init_file.empty() && !file.empty() && !holds_weights(file)) file.clear();
  if (file.empty() && from == nullptr) check_drawable(*layout, config.model.file);
  initial = file.empty()
                ? Rows{initial_row(*layout, context.seed, context.type, config.model.init), layout}
                : read_initial_model(config.model.key_of_weights(), file, layout, context.type,
                                     config.model.init_state);
  if (!file.empty()) check_finite(initial, config.model.key_of_weights(), file);
  return !file.empty();
}

}  // namespace fedhpc
