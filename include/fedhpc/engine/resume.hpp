#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fedhpc/core/configuration_source.hpp"
#include "fedhpc/engine/checkpoint.hpp"
#include "fedhpc/engine/output.hpp"

namespace fedhpc {

/// Returns the configuration, an INI text, in a result file or a checkpoint; empty where it cannot
/// be read.
std::string config_in(const std::string& path);

/// Keys that tell how a run goes on and where things lie. All others say what its rounds mean.
std::span<const std::string_view> keys_to_change_on_resume();

/// Whether a key has another value than before that gives past rounds another meaning. Keys that
/// another method lacks follow from algorithm.name.
bool changes_meaning(const OptionSet::Entry& entry, const Config& before);

/// What a result file says of its run.
struct RunStatus {
  static constexpr const char* kForeign = "not a result file";

  std::string started;      ///< as identity_of() has it, or kForeign
  std::string status;       ///< "complete", "diverged", "interrupted", "failed"; "running" before
  std::int64_t rounds = 0;  ///< done
  bool closed = false;      ///< whether its writer has closed it

  /// Whether there is nothing to go on with, but for more rounds. A run that was killed after its
  /// last words leaves a file that most readers refuse: it has not ended.
  bool has_ended() const { return closed && (status == "complete" || status == "diverged"); }
};

/// Reads it; nothing for a file that is damaged, which one that was being written when its run was
/// killed may be.
std::optional<RunStatus> status_of_run(const std::string& results);

/// `fedhpc resume PATH` goes on from this point.
struct ResumePoint {
  Resumption from;
  std::string results;                ///< the result file the run belongs to
  std::vector<std::string> warnings;  ///< on damaged files that were passed over
  bool chosen = false;                ///< the checkpoint was given; rank 0 knows it
  std::string ended;  ///< how, where check_results() finds nothing left to do; rank 0 knows it
};

/// Finds the point from which a run goes on: the checkpoint `path`, or the newest usable one beside
/// the result file `path`. One rank calls it. Throws DataError if there is none.
ResumePoint find_resume_point(const std::string& path, const Tick& tick = {});

/// Finds it for every rank. Collective; errors as on rank 0.
ResumePoint find_resume_point(const std::string& path, Communicator& comm);

/// Decides the fate of the file in the place of run.output. It is set aside where it, or a
/// checkpoint beside it, has rounds that would be lost. Nothing where the run is complete and has
/// no rounds left. Throws DataError if the file belongs to another run, or to no run at all. Adds a
/// warning to `point` if the file is damaged. One rank calls it.
std::optional<Earlier> check_results(ResumePoint& point, const Config& config);

/// Returns the configuration of the run with `changes` from the command line. Throws ConfigError
/// for a change that would give its past rounds another meaning.
std::unique_ptr<Config> resumed_configuration(const ResumePoint& point,
                                              const std::vector<Assignment>& changes);

/// Takes the whole configuration as it is now, of the file `name`. Throws ConfigError that names
/// every key whose value would give past rounds another meaning.
std::unique_ptr<Config> resumed_configuration(const ResumePoint& point, const std::string& name,
                                              std::vector<Assignment> assignments);

/// The end of the run in a result file, if it has one and all that this run would have: the keys that
/// may not change are the same, and it has as many rounds or more, or has diverged and was to stop
/// then. One rank calls it.
std::optional<RunStatus> end_of_run(const std::string& results, const Config& config);

/// The same, if data, model and code are those of this run as well. Collective.
std::optional<RunStatus> is_over(const std::string& results, const Experiment& experiment,
                                 Communicator& comm);

}  // namespace fedhpc
