#include "fedhpc/engine/resume.hpp"

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

}  // namespace

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
             point.from.holds_initial_model, ' ', point.from.of_own_code, ' ', point.from.evaluated,
             ' ', point.from.inside_round);
  share(numbers);
  std::istringstream(numbers) >> point.from.round >> point.from.block >>
      point.from.diverged_since >> point.from.holds_initial_model >> point.from.of_own_code >>
      point.from.evaluated >> point.from.inside_round;
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

}  // namespace fedhpc
