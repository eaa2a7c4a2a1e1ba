#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fedhpc/app/commands.hpp"
#include "fedhpc/core/configuration_source.hpp"
#include "fedhpc/core/stop_signals.hpp"
#include "fedhpc/engine/experiment.hpp"
#include "fedhpc/engine/output.hpp"
#include "fedhpc/io/digests.hpp"

namespace fedhpc {

/// A configuration as a file, a command line or another program gives it.
struct Given {
  std::string name;  ///< the file's path; run.output's default follows from it
  std::vector<Assignment> assignments;
};

/// Follows a run from outside, on rank 0.
struct Onlooker {
  std::function<void(const Experiment&, std::int64_t done)> begin{};   ///< after so many rounds
  std::function<void(const Experiment&, const RoundReport&)> round{};  ///< after each
  std::function<bool()>
      stop{};  ///< asked once a round on every rank: true ends it as a signal does
};

/// How a process carries out a run that is one thing among others it does.
struct Host {
  std::string command_line;  ///< for the result file
  Onlooker onlooker{};
  StopSignals::Afterwards afterwards = StopSignals::Afterwards::ProcessEnds;
};

struct RunEnd {
  int exit_code = 0;   ///< as of the command
  std::string status;  ///< in the result file; empty: no round was left
  std::string output;  ///< its path
  int signal = 0;      ///< to stop, which a rank has caught meanwhile; 0: none has
};

/// What the commands of these names do. `read` is called once MPI runs, on every rank, and throws as
/// Config does. `earlier`: what becomes of the result file that is there. Collective.
RunEnd run(const std::function<Given()>& read, const StartOptions& start, Earlier earlier,
           const Host& host);
/// `path`: a result file or a checkpoint. `read`: a configuration file and what it gives, or no file
/// and changes alone.
RunEnd resume(const std::string& path, const std::function<Given()>& read,
              const StartOptions& start, const Host& host);
/// What a run would be.
struct Plan {
  std::vector<std::pair<std::string, std::string>> needs;  ///< names and numbers, in their order
  std::vector<Assignment> config;                          ///< as its result file would have it
  std::vector<Metric> series;                              ///< of /rounds
  Digests digests;
};

/// On every rank. `ranks`: those of a machine that is not there; none: of this one.
Plan plan(const std::function<Given()>& read, const StartOptions& start,
          std::optional<int> ranks = {});

/// A registry as readers see it.
struct Kind {
  std::string name;  ///< as in `fedhpc list NAME`
  std::string singular;
  std::string key;  ///< the key that takes one of its names; empty: each method has its own
  std::vector<std::pair<std::string, std::string>> listing;
};

/// Everything there is to choose from.
std::vector<Kind> kinds();

/// What `fedhpc help NAME` prints. Throws ConfigError for a name nobody knows.
std::string help_text(const std::string& name);

}  // namespace fedhpc
