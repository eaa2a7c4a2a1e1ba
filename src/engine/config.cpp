#include "fedhpc/engine/config.hpp"

#include <algorithm>
#include <filesystem>

#include "fedhpc/comm/gpu_library.hpp"
#include "fedhpc/core/device_kernels.hpp"
#include "fedhpc/core/error.hpp"

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

}  // namespace

void RunOptions::declare(OptionSet& options) {
  options.add("run.seed", seed, at_least<std::int64_t>(0),
              "seed of initial weights, cohorts and batches");
  options.add("run.rounds", rounds, at_least<std::int64_t>(1), "global rounds");
  options.add("run.output", output,
              "result file; an earlier one there is renamed (fedhpc help run); default: the "
              "configuration's name with .h5, in the current folder",
              "the path of a file in an existing folder");
  options.add("run.device", device,
              Names<DeviceKind>{
                  {"auto", DeviceKind::Auto}, {"cpu", DeviceKind::Cpu}, {"cuda", DeviceKind::Cuda}},
              "where clients are trained; auto: on the CPU; cuda: each rank on a GPU of its host");
  options.add(
      "run.reproducible", reproducible,
      "sum exactly: the same bits on any number of ranks and in any block width, on CPUs or GPUs "
      "of one type and with one build");
  options.add("run.dtype", dtype,
              Names<DType>{{"float32", DType::Float32}, {"float64", DType::Float64}},
              "number type of data, weights and payloads");
  options.add("run.eval_every", eval_every, at_least<std::int64_t>(1),
              "evaluate after every so many rounds, and after the last");
  options.add_or_auto(
      "run.checkpoint_every", checkpoint_every, at_least<std::int64_t>(0),
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
  options.add(
      "run.grace_seconds", grace_seconds, at_least(0.0),
      "seconds between a signal to stop and the end by force: a round that would take longer "
      "is left between two blocks of clients and gone on with there by resume");
  options.add("run.collective_timeout", collective_timeout, above(0.0),
              "seconds a rank waits for the others while none of them gets on, before it gives up");
  options.add(
      "run.save", save, {"init", "partition", "draws", "personal"},
      "what the result file holds beside the final model: initial weights, the partition, the "
      "cohorts drawn, the clients' own models");
}

bool RunOptions::saves(const std::string& what) const {
  return std::find(save.begin(), save.end(), what) != save.end();
}

Config::Config(const std::vector<Assignment>& assignments, const std::string& name) {
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
  store.declare(options_);
  std::vector<std::string> methods;
  for (const AlgorithmInfo& info : algorithm_registry()) methods.push_back(info.name);
  options_.add_choice("algorithm.name", algorithm_name, methods,
                      "federated-learning method (fedhpc list algorithms)");
  algorithm->declare(options_);

  for (const Assignment& assignment : assignments) {
    options_.assign(assignment.key, assignment.value, assignment.origin);
  }
  folder_ = std::filesystem::absolute(name).parent_path().string();
  find_files();
  resolve(name);
}

void Config::resolve(const std::string& name) {
  train.resolve(options_);
  factorisation.resolve(options_, algorithm_name, algorithm->factorisations());
  algorithm->check(options_);
  if (options_.origin("data.seed").level == Level::Default) data.seed = run.seed;
  if (run.output.empty()) {
    run.output = std::filesystem::path(name).stem().string() + ".h5";
  }
  if (run.saves("personal") && !has_personal(algorithm->models())) {
    throw ConfigError(concat(options_.origin("run.save").place,
                             ": key 'run.save' cannot hold 'personal' with algorithm.name = ",
                             algorithm_name, ", whose clients have no models of their own"));
  }
  if (algorithm->tiers() == Tiers::ClientEdgeCloud && topology.edges == 0) {
    throw ConfigError(concat("algorithm.name = ", algorithm_name,
                             " needs edges; set topology.edges to 1 or more"));
  }
  if (algorithm->tiers() == Tiers::ClientCloud && topology.edge_participation != 1) {
    throw ConfigError(concat(options_.origin("topology.edge_participation").place,
                             ": key 'topology.edge_participation' cannot be ",
                             topology.edge_participation, " with algorithm.name = ", algorithm_name,
                             ", which draws clients, not edges; use topology.participation"));
  }
  if (run.dtype == DType::Float64 && train.precision != Precision::Fp32) {
    options_.refuse("train.precision", "it is of float32 numbers, and run.dtype is float64");
  }
  if (run.device == DeviceKind::Cuda) {
    const std::string reason = why_not_cuda();
    if (reason.empty()) return;
    throw ConfigError(concat(options_.origin("run.device").place,
                             ": key 'run.device' cannot be 'cuda': ", reason,
                             "; allowed: auto, cpu"));
  }
}

}  // namespace fedhpc
