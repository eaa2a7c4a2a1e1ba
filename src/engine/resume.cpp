#include "fedhpc/engine/resume.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <sstream>
#include <unistd.h>

#include "fedhpc/io/checkpoint_files.hpp"
#include "fedhpc/io/durable.hpp"
#include "fedhpc/io/hdf5.hpp"

namespace fedhpc {

namespace {

namespace fs = std::filesystem;

constexpr const char* kForeign = RunStatus::kForeign;

// How a run goes on and where things lie. All other keys say what its rounds mean.
constexpr auto kChangeable = std::to_array<std::string_view>({"run.rounds",
                                                              "run.output",
                                                              "run.plugin",
                                                              "run.progress",
                                                              "run.log_level",
                                                              "run.eval_every",
                                                              "run.live",
                                                              "run.device",
                                                              "run.collective_timeout",
                                                              "run.mpi",
                                                              "run.checkpoint_every",
                                                              "run.grace_seconds",
                                                              "run.stop_on_divergence",
                                                              "data.dir",
                                                              "data.file",
                                                              "data.test_file",
                                                              "data.partition_file",
                                                              "model.file",
                                                              "model.init_file",
                                                              "train.block",
                                                              "store.device_budget"});

bool changeable(const std::string& key) {
  return std::find(kChangeable.begin(), kChangeable.end(), key) != kChangeable.end();
}

/// Throws DataError unless a result file of the run `run` is that of a checkpoint.
void check_same_run(const std::string& results, const std::string& run, const Resumption& from) {
  if (run == from.started) return;
  const bool foreign = run == kForeign;
  throw DataError(concat("'", results, "' is ",
                         foreign ? "not a result file of fedhpc" : "of a run that started " + run,
                         ", checkpoint '", from.checkpoint, "' is of one that started ",
                         from.started, "; to go on from the checkpoint: fedhpc resume ",
                         from.checkpoint, " --run.output=OTHER.h5"));
}

/// The result file a checkpoint belongs to: beside it, of the name its run gave it.
std::string results_beside(const std::string& checkpoint, const std::string& given_name) {
  const CheckpointFile named = results_of_checkpoint(checkpoint);
  const std::string output = fs::path(given_name).filename().string();
  const fs::path folder = fs::path(checkpoint).parent_path();
  const bool same = checkpoint_path((folder / output).string(), named.round) ==
                    (folder / fs::path(checkpoint).filename()).string();
  return same ? (folder / output).string() : named.path;
}

ResumePoint from_checkpoint(const std::string& path, const Tick& tick) {
  ResumePoint point;
  point.chosen = true;
  point.from = read_resumption(path, tick);
  point.results =
      results_beside(path, lookup(parse_ini(point.from.config, path), "run.output", "run.h5"));
  return point;
}

/// Why nothing beside a result file can be gone on from; `run`: what it says, where it can be read.
DataError nothing_found(const std::string& results, const std::optional<RunStatus>& run) {
  std::error_code failed;
  const std::string problem = !fs::exists(results, failed)            ? "there is no such file"
                              : !fs::is_regular_file(results, failed) ? "it is not a file"
                              : access(results.c_str(), R_OK) != 0    ? "no permission to read it"
                              : h5::is_hdf5(results) != true          ? "it is not an HDF5 file"
                              : run && run->has_ended()
                                  ? concat("it is ", run->status, " with ", run->rounds,
                                           " rounds, and for more there is no checkpoint beside it")
                                  : "there is no checkpoint of it beside it";
  const bool killed = run && run->started != kForeign && !run->has_ended();
  return DataError(concat("'", results, "' cannot be resumed: ", problem,
                          "; give RUN.h5 with its checkpoints RUN.ckpt.N.h5 in the same folder, ",
                          "or one of them", killed ? ", or start the run anew" : ""));
}

ResumePoint beside_results(const std::string& results, const Tick& tick) {
  ResumePoint point;
  point.results = results;
  std::error_code failed;
  std::optional<RunStatus> run;
  if (fs::is_regular_file(results, failed) && h5::is_hdf5(results) == true) {
    run = status_of_run(results);
  }
  std::optional<DataError> refused;
  for (const CheckpointFile& file : checkpoints_of(results)) {
    if (access(file.path.c_str(), R_OK) != 0) {
      throw DataError(concat("checkpoint '", file.path, "' cannot be read: ", std::strerror(errno),
                             "; mend that, or name an older one to go on from"));
    }
    try {
      point.from = read_resumption(file.path, tick);
      if (!run || run->started == point.from.started) return point;
      check_same_run(results, run->started, point.from);  // an earlier run of the same name left it
    } catch (const NewerVersion&) {
      throw;  // it is whole, and an older one's end would replace it
    } catch (const DataError& error) {
      if (!refused) refused = error;
      point.warnings.emplace_back(error.what());
    }
  }
  if (!refused) throw nothing_found(results, run);
  throw DataError(concat(refused->what(), "; no other checkpoint of '", results,
                         "' is left: without that one `fedhpc run` begins anew"));
}

/// Gives a run its result file where it lies now, unless the command line names one: files may have
/// moved since.
void put_results(const ResumePoint& point, std::vector<Assignment>& assignments) {
  std::erase_if(assignments, [](const Assignment& one) {
    return one.key == "run.output" && one.origin.level != Level::CommandLine;
  });
  assignments.push_back({"run.output", point.results, {Level::File, point.from.checkpoint}});
}

bool names_plugins(const Assignment& one) { return one.key == "run.plugin"; }

/// What the run was started with. Plug-ins are those of `changes` where it names any: files may have
/// moved since.
std::vector<Assignment> stored_assignments(const ResumePoint& point,
                                           const std::vector<Assignment>& changes) {
  std::vector<Assignment> assignments = parse_ini(point.from.config, point.from.checkpoint);
  for (Assignment& one : assignments) one.origin.level = Level::Stored;
  if (std::any_of(changes.begin(), changes.end(), names_plugins)) {
    std::erase_if(assignments, names_plugins);
    std::copy_if(changes.begin(), changes.end(), std::back_inserter(assignments), names_plugins);
  }
  put_results(point, assignments);
  return assignments;
}

/// `name`: the path of the file from which `changes` come, if they are of one.
std::unique_ptr<Config> stored_configuration(const ResumePoint& point,
                                             const std::vector<Assignment>& changes,
                                             const std::string& name) {
  try {
    return std::make_unique<Config>(stored_assignments(point, changes), name);
  } catch (const ConfigError& error) {
    const std::string said = error.what();
    if (!point.from.of_own_code || said.find("'algorithm.name'") == std::string::npos) throw;
    throw ConfigError(concat(said, "; the method was not fedhpc's own: give its file, ",
                             "--run.plugin=FILE, or define its class before"));
  }
}

std::string changeable_keys(const Config& config) {
  std::vector<std::string> allowed;
  for (const std::string_view one : kChangeable) {
    if (config.options().contains(one)) allowed.emplace_back(one);
  }
  return concat("keys that may change: ", join(allowed));
}

void check_rounds(const Config& config, const ResumePoint& point) {
  if (config.run.rounds >= point.from.round) return;
  throw ConfigError(concat("run.rounds = ", config.run.rounds, " is less than the ",
                           point.from.round, " rounds done in checkpoint '", point.from.checkpoint,
                           "'; allowed: at least ", point.from.round));
}

}  // namespace

std::span<const std::string_view> keys_to_change_on_resume() { return kChangeable; }

bool changes_meaning(const OptionSet::Entry& entry, const Config& before) {
  if (!before.options().contains(entry.key)) return false;
  const std::string now = entry.print(), then = before.options().entry(entry.key).print();
  // The file of first weights may lie elsewhere. A run that had none drew them.
  if (entry.key == "model.init_file") return now.empty() != then.empty();
  return !changeable(entry.key) && now != then;
}

ResumePoint find_resume_point(const std::string& path, const Tick& tick) {
  const std::string target = link_target(path);
  const bool checkpoint = !results_of_checkpoint(target).path.empty();
  return checkpoint ? from_checkpoint(target, tick) : beside_results(target, tick);
}

ResumePoint find_resume_point(const std::string& path, Communicator& comm) {
  ResumePoint point;
  fail_together(comm, [&] {
    if (comm.rank() == 0) point = find_resume_point(path, [&] { comm.progress(); });
  });
  // What rank 0 has found, on every rank.
  const auto share = [&](std::string& text) { text = comm.all_texts(text).front(); };
  share(point.results);
  share(point.from.checkpoint);
  share(point.from.config);
  share(point.from.started);
  std::string numbers =
      concat(point.from.round, ' ', point.from.block, ' ', point.from.diverged_since, ' ',
             point.from.holds_initial_model, ' ', point.from.of_own_code);
  share(numbers);
  std::istringstream(numbers) >> point.from.round >> point.from.block >>
      point.from.diverged_since >> point.from.holds_initial_model >> point.from.of_own_code;
  return point;
}

std::optional<Earlier> check_results(ResumePoint& point, const Config& config) {
  const std::string results = link_target(config.run.output);
  const std::int64_t round = point.from.round;
  // Where the newest usable one was looked for, newer ones are damaged.
  const std::vector<CheckpointFile> beside = checkpoints_of(results);
  const bool newer =
      (point.chosen || results != point.results) && !beside.empty() && beside.front().round > round;
  const Earlier otherwise = newer ? Earlier::SetAside : Earlier::Replace;
  std::error_code failed;
  if (!fs::exists(results, failed)) return otherwise;
  // An empty one holds nothing that could be lost.
  const bool regular = fs::is_regular_file(results, failed);
  if (!regular || (fs::file_size(results, failed) > 0 && h5::is_hdf5(results) == false)) {
    check_same_run(results, kForeign, point.from);
  }
  const std::optional<RunStatus> run = status_of_run(results);
  if (!run) {
    point.warnings.push_back(concat("'", results, "' is damaged; all rounds up to ", round,
                                    " are taken from checkpoint '", point.from.checkpoint, "'"));
    return otherwise;
  }
  check_same_run(results, run->started, point.from);
  if (!run->has_ended()) return otherwise;
  const bool asked_for = run->rounds == config.run.rounds;
  if (asked_for && (!point.chosen || run->rounds == round)) {
    point.ended = run->status;
    return std::nullopt;
  }
  return run->rounds > round ? Earlier::SetAside : otherwise;
}

std::unique_ptr<Config> resumed_configuration(const ResumePoint& point,
                                              const std::vector<Assignment>& changes) {
  const std::unique_ptr<Config> before =
      stored_configuration(point, changes, point.from.checkpoint);
  const auto refuse = [&](const std::string& key, const std::string& value) -> ConfigError {
    return ConfigError(concat("command line: key '", key, "' cannot be '", value,
                              "': the run was started with '", before->options().entry(key).print(),
                              "', and its past rounds would lose their meaning; ",
                              changeable_keys(*before)));
  };
  std::vector<Assignment> assignments = stored_assignments(point, changes);
  for (const Assignment& change : changes) {
    if (names_plugins(change)) continue;  // they are among the stored ones
    // Another method has other keys: compared before they are looked for.
    if (change.key == "algorithm.name" && change.value != before->algorithm_name) {
      throw refuse(change.key, change.value);
    }
    assignments.push_back(change);
  }
  auto config = std::make_unique<Config>(assignments, point.from.checkpoint);
  for (const OptionSet::Entry& entry : config->options().entries()) {
    if (changes_meaning(entry, *before)) throw refuse(entry.key, entry.print());
  }
  check_rounds(*config, point);
  return config;
}

std::unique_ptr<Config> resumed_configuration(const ResumePoint& point, const std::string& name,
                                              std::vector<Assignment> assignments) {
  put_results(point, assignments);
  auto config = std::make_unique<Config>(assignments, name);
  const std::unique_ptr<Config> before = stored_configuration(point, assignments, name);
  std::vector<std::string> others;
  for (const OptionSet::Entry& entry : config->options().entries()) {
    if (!changes_meaning(entry, *before)) continue;
    others.push_back(concat(entry.key, " = ", entry.print(), " (was ",
                            before->options().entry(entry.key).print(), ")"));
  }
  if (!others.empty()) {
    throw ConfigError(concat("configuration '", name, "' is not that of checkpoint '",
                             point.from.checkpoint, "': ", join(others),
                             "; past rounds would lose their meaning: put it back, or begin a new ",
                             "run with another run.output; ", changeable_keys(*before)));
  }
  check_rounds(*config, point);
  return config;
}

}  // namespace fedhpc
