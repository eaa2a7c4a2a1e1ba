#include "fedhpc/engine/config.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "fedhpc/comm/gpu_library.hpp"
#include "fedhpc/core/device_kernels.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/engine/method_keys.hpp"

#include "core/thrown.hpp"

namespace fedhpc {

namespace {

/// What keeps a run from a GPU here; empty if nothing does.
std::string why_not_cuda() {
  try {
    if (gpu_library().devices() == 0) return "no CUDA device";
    device_kernels();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

/// Throws ConfigError that names the method for whatever traits() throws: those of all methods are
/// asked in every run.
Traits traits_of(const std::string& name, const Algorithm& method) {
  try {
    return method.traits();
  } catch (const ConfigError&) {
    throw;
  } catch (...) {
    throw ConfigError(concat("method '", name, "': traits() failed: ", what_was_thrown()));
  }
}

}  // namespace

void RunOptions::declare(OptionSet& options) {
  options.add("run.seed", seed, at_least<std::int64_t>(0),
              "seed of initial weights, cohorts and batches");
  options.add("run.rounds", rounds, count_from(1), "global rounds");
  options.add("run.output", output,
              "result file; an earlier one there is renamed (fedhpc help run); default: the "
              "configuration's name with .h5, in the current folder",
              "the path of a file in an existing folder");
  options.add(
      "run.device", device,
      Names<DeviceKind>{
          {"auto", DeviceKind::Auto}, {"cpu", DeviceKind::Cpu}, {"cuda", DeviceKind::Cuda}},
      "where clients are trained; auto: on the CPU, and a note where the job has GPUs; cuda: each "
      "rank on a GPU of its host");
  options.add(
      "run.reproducible", reproducible,
      "sum exactly: the same bits on any number of ranks and in any block width, on CPUs or GPUs "
      "of one type and with one build");
  options.add("run.dtype", dtype,
              Names<DType>{{"float32", DType::Float32}, {"float64", DType::Float64}},
              "number type of data, weights and payloads");
  options.add("run.eval_every", eval_every, count_from(1),
              "evaluate after every so many rounds, and after the last");
  options.add_or_auto(
      "run.checkpoint_every", checkpoint_every, count_from(0),
      "rounds between checkpoints; the last two are kept, and one of a complete run; auto: once a "
      "minute, at most a twentieth of the time; 0: only when a signal interrupts the run");
  options.add("run.live", live,
              Names<LiveMode>{
                  {"auto", LiveMode::Auto}, {"swmr", LiveMode::Swmr}, {"flush", LiveMode::Flush}},
              "how the result file is read while it grows: swmr: at any time; flush: by any reader "
              "after the run or its end by force, for file systems that refuse swmr (NFS); auto: "
              "swmr where the file system allows it");
  options.add("run.progress", progress,
              Names<ProgressKind>{{"auto", ProgressKind::Auto},
                                  {"bar", ProgressKind::Bar},
                                  {"plain", ProgressKind::Plain},
                                  {"none", ProgressKind::None}},
              "progress display; auto: a bar on a terminal, plain lines elsewhere");
  options.add("run.log_level", log_level,
              Names<LogLevel>{{"error", LogLevel::Error},
                              {"warning", LogLevel::Warning},
                              {"note", LogLevel::Note},
                              {"debug", LogLevel::Debug}},
              "what standard error tells: everything up to this level; debug: what was chosen at "
              "the start, the seconds of every round, checkpoints written and removed");
  options.add(
      "run.grace_seconds", grace_seconds, at_least(0.0),
      "seconds between a signal to stop and the end by force: a round that would take longer "
      "is left between two blocks of clients and gone on with there by resume");
  options.add("run.stop_on_divergence", stop_on_divergence,
              "end a run after the round in which it diverges, with exit code 1: a loss is not "
              "finite or above 10^4 times that of guessing; otherwise it goes on, and its status "
              "tells");
  options.add(
      "run.collective_timeout", collective_timeout, above(0.0),
      "seconds a rank waits for the others while none of them gets on, before it gives up; a "
      "configuration from a pipe is read too late to say it for the start");
  options.add(
      "run.mpi", mpi,
      Names<UseMpi>{{"auto", UseMpi::Auto}, {"on", UseMpi::On}, {"off", UseMpi::Off}},
      "whether MPI is started; auto: where a launcher (mpirun, srun, flux run, ...) started "
      "this process; off: one process alone, whatever started it; a configuration from a pipe "
      "is read too late to say it");
  options.add(
      "run.save", save, {"init", "partition", "draws", "personal"},
      "what the result file holds beside the final model: initial weights, the partition, the "
      "cohorts drawn, the clients' own models");
  declare_plugins(options, plugins);
}

void RunOptions::declare_plugins(OptionSet& options, std::vector<std::string>& plugins) {
  options.add_words("run.plugin", plugins,
                    "files of methods, models, data sets, ... that are not fedhpc's own, loaded "
                    "before anything else (docs/how-to/add-an-algorithm.md); a relative path means "
                    "one in the working directory or beside the configuration that names it");
}

bool RunOptions::saves(const std::string& what) const {
  return std::find(save.begin(), save.end(), what) != save.end();
}

Config::Config(const std::vector<Assignment>& assignments, const std::string& name)
    : folder_(std::filesystem::absolute(name).parent_path().string()) {
  load_plugins(assignments);
  std::string method_place = "configuration";
  for (const Assignment& assignment : assignments) {
    if (assignment.key == "algorithm.name") method_place = assignment.origin.place;
  }
  // The method comes first: which algorithm.* keys exist is its own business.
  algorithm_name = lookup(assignments, "algorithm.name", algorithm_name);
  algorithm = make_algorithm(algorithm_name, method_place);

  run.declare(options_);
  data.declare(options_);
  model.declare(options_);
  factorisation.declare(options_);
  topology.declare(options_);
  train.declare(options_);
  network.declare(options_);
  privacy.declare(options_);
  store.declare(options_);
  options_.add_choice("algorithm.name", algorithm_name, algorithm_registry().names(),
                      "federated-learning method (fedhpc list algorithms)");
  declare_keys(*algorithm, algorithm_name, options_);

  declare_methods_of_keys();

  const ActingAssignments acting = acting_assignments(assignments, algorithm_name);
  notes_ = acting.notes;
  for (const Assignment& assignment : acting.assignments) {
    options_.assign(assignment.key, assignment.value, assignment.origin);
  }
  find_files();
  resolve(name);
}

void Config::declare_methods_of_keys() {
  std::vector<std::pair<std::string, Traits>> all;
  for (const auto& method : algorithm_registry()) {
    all.emplace_back(method.name, traits_of(method.name, *method.make()));
  }
  const auto named = [&](const std::function<bool(const Traits&)>& fit) {
    std::vector<std::string> names;
    std::vector<std::string> others;
    for (const auto& [name, traits] : all) (fit(traits) ? names : others).push_back(name);
    return others.size() == 1 ? unless("algorithm.name", others.front())
                              : where("algorithm.name", names);
  };
  const auto methods = [&](const std::function<bool(const Traits&)>& fit) {
    Condition condition = named(fit);
    // The traits of this run's method may follow from its own keys, which are set by then.
    condition.holds = [this, fit](const OptionSet&) { return fit(algorithm->traits()); };
    return condition;
  };
  const auto has_edges = [](const Traits& one) { return one.tiers == Tiers::ClientEdgeCloud; };
  const Condition with_edges = methods(has_edges);
  for (const char* key : {"topology.edges", "topology.edge_participation",
                          "network.client_edge_mbps", "network.edge_cloud_mbps"}) {
    options_.acts(key, with_edges);
  }
  options_.acts("topology.placement",
                methods([](const Traits& one) { return one.can_leave_rounds; }));
  // Others draw the number of steps themselves, one for all clients.
  options_.acts("train.stragglers", methods([](const Traits& one) { return one.mean_steps == 0; }));
  const auto is_private = [](const Traits& one) { return one.private_uploads() > 0; };
  Condition uploads = named(is_private);
  // Own keys of such a method that leave no upload of the kind are what PrivacyOptions::check names.
  uploads.holds = [this, is_private, of_name = uploads.holds](const OptionSet& options) {
    return of_name(options) || is_private(algorithm->traits());
  };
  options_.acts("privacy.clip", uploads);
  const Condition exchanges = unless("algorithm.name", "localonly");
  // pFedSOP's clients send what moves trainable columns alone, in any case.
  options_.acts("train.buffers", unless("algorithm.name", "pfedsop"));
  options_.acts("train.buffers", exchanges);
  options_.acts("network.client_cloud_mbps",
                methods([&](const Traits& one) { return !has_edges(one); }));
  options_.acts("network.client_cloud_mbps", exchanges);
  options_.acts("network.latency_ms", exchanges);
  const Condition factorising =
      methods([](const Traits& one) { return !one.factorisations.names.empty(); });
  for (const char* key : {"model.factorisation", "model.rank", "model.compression",
                          "model.compression_scope", "model.exclude", "model.conv_view",
                          "model.block_layout", "model.lora_alpha", "model.rank_bound"}) {
    options_.acts(key, factorising);
  }
}

void Config::resolve(const std::string& name) {
  factorisation.resolve(options_, algorithm_name, algorithm->traits().factorisations);
  for (std::string& note : options_.check_acting()) notes_.push_back(std::move(note));
  // What was auto once more is settled as before.
  factorisation.resolve(options_, algorithm_name, algorithm->traits().factorisations);
  const Traits traits = algorithm->traits();
  train.resolve(options_, run.rounds, traits.trainings_in_round);
  if (traits.divides_by_rate) {
    train.refuse_lost_rates(options_, run.rounds, run.dtype,
                            concat("algorithm.name = ", algorithm_name));
  }
  if (const double steps = traits.mean_steps; steps > 0) {
    train.local_steps = std::max<std::int64_t>(1, std::llround(steps));
    train.local_epochs = 0;
    train.stragglers = {0};
  }
  options_.run_checks();
  privacy.check(options_, algorithm->traits().private_uploads());
  if (options_.origin("data.seed").level == Level::Default) data.seed = run.seed;
  std::sort(run.save.begin(), run.save.end());  // a set
  if (run.output.empty()) {
    run.output = std::filesystem::path(name).stem().string() + ".h5";
  }
  if (run.saves("personal") && !has_personal(algorithm->traits().models)) {
    throw ConfigError(concat(options_.origin("run.save").place,
                             ": key 'run.save' cannot hold 'personal' with algorithm.name = ",
                             algorithm_name, ", whose clients have no models of their own"));
  }
  if (algorithm->traits().tiers == Tiers::ClientEdgeCloud && topology.edges == 0) {
    throw ConfigError(concat("algorithm.name = ", algorithm_name,
                             " needs edges; set topology.edges to 1 or more"));
  }
  if (run.device == DeviceKind::Cuda && model.by_autograd()) {
    options_.refuse("run.device", "model.backend = autograd, which trains on the CPU; use cpu");
  }
}

void Config::check_device() const {
  const std::string reason = run.device == DeviceKind::Cuda ? why_not_cuda() : "";
  if (reason.empty()) return;
  throw ConfigError(concat(options_.origin("run.device").place,
                           ": key 'run.device' cannot be 'cuda': ", reason,
                           "; allowed: auto, cpu"));
}

}  // namespace fedhpc
