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

/// The configuration, as an INI text, in a result file or a checkpoint; empty where it cannot be
/// read.
std::string config_in(const std::string& path);

/// Keys of how a run goes on and where things lie. All others say what its rounds mean.
std::span<const std::string_view> keys_to_change_on_resume();

/// What `fedhpc resume PATH` goes on from.
struct ResumePoint {
  Resumption from;
  std::string results;                ///< the result file the run belongs to
  std::vector<std::string> warnings;  ///< what was found damaged and passed over
  bool chosen = false;                ///< the checkpoint was given; rank 0 knows it
};

/// Finds where a run goes on: from the checkpoint `path`, or from the newest usable one beside the
/// result file `path`. To be called on one rank. Throws DataError if there is none.
ResumePoint find_resume_point(const std::string& path);

/// The same on every rank. Collective; errors as on rank 0.
ResumePoint find_resume_point(const std::string& path, Communicator& comm);

/// What becomes of the file in the place of run.output: set aside where it, or a checkpoint beside
/// it, has rounds that would be lost. Nothing where the run is complete and has none left. Throws
/// DataError if the file belongs to another run, or to no run at all; adds a warning to `point` if
/// it is damaged. To be called on one rank.
std::optional<Earlier> check_results(ResumePoint& point, const Config& config);

/// The configuration of the run with `changes` from the command line. Throws ConfigError for a
/// change that would give its past rounds another meaning.
std::unique_ptr<Config> resumed_configuration(const ResumePoint& point,
                                              const std::vector<Assignment>& changes);

/// The same from the configuration file `path` as it is now. Throws ConfigError that names every
/// key whose value would give past rounds another meaning.
std::unique_ptr<Config> resumed_configuration(const ResumePoint& point, const std::string& path,
                                              const std::vector<Assignment>& changes);

}  // namespace fedhpc
