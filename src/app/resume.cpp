#include "fedhpc/engine/resume.hpp"

#include <cstdio>
#include <optional>

#include "fedhpc/app/commands.hpp"
#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/log.hpp"
#include "fedhpc/core/stop_signals.hpp"
#include "fedhpc/engine/output.hpp"
#include "fedhpc/engine/progress.hpp"
#include "fedhpc/io/checkpoint_files.hpp"
#include "fedhpc/io/durable.hpp"

#include "app/carry_out.hpp"
#include "app/configuration.hpp"

namespace fedhpc {

namespace {

/// The result file that `fedhpc resume PATH` with these changes writes, or one whose checkpoints
/// have the same names.
std::string output_of(const std::string& path, const std::vector<Assignment>& changes) {
  const std::string target = link_target(path);
  const CheckpointFile checkpoint = results_of_checkpoint(target);
  return lookup(changes, "run.output", checkpoint.path.empty() ? target : checkpoint.path);
}

/// Says on rank 0 that a complete run has no rounds left.
void say_complete(const Config& config, int rank) {
  if (rank != 0 || config.run.progress == ProgressKind::None) return;
  const std::string path = shell_word(config.run.output);
  std::printf(
      "nothing to do: %s is complete with %lld rounds; for more of them: fedhpc resume %s "
      "--run.rounds=N\n",
      path.c_str(), static_cast<long long>(config.run.rounds), path.c_str());
}

}  // namespace

int resume_command(const Arguments& arguments, const std::string& command_line) {
  pin_threads();
  LockFile claim;  // on rank 0, to the very end
  const StopSignals signals;
  std::unique_ptr<Communicator> comm =
      world_communicator(start_options("resume", arguments).timeout);
  std::string configuration;  // of the run as it is to be now, or empty: as it was
  std::vector<Assignment> changes;
  fail_together(*comm, [&] {
    if (arguments.empty() || arguments.front().starts_with("--")) {
      throw ConfigError(
          "fedhpc resume needs a result file or a checkpoint first: fedhpc resume RUN.h5 "
          "[CONFIG.ini] [--section.key=value ...]");
    }
    auto next = arguments.begin() + 1;
    if (next != arguments.end() && !next->starts_with("--")) configuration = *next++;
    changes = parse_command_line({next, arguments.end()});
    if (!configuration.empty()) read_ini(configuration);  // refused before the run is looked for
    if (comm->rank() == 0) claim = claim_output(output_of(arguments.front(), changes));
  });
  ResumePoint point = find_resume_point(arguments.front(), *comm);
  std::unique_ptr<Config> config;
  std::optional<Earlier> earlier = Earlier::Replace;
  fail_together(*comm, [&] {
    config = configuration.empty() ? resumed_configuration(point, changes)
                                   : resumed_configuration(point, configuration, changes);
    run_log().show(config->run.log_level);
    if (comm->rank() != 0) return;
    run_log().of_run(LogLevel::Warning, check_output(*config, "", claim));
    earlier = check_results(point, *config);
  });
  tell_notes(*config);
  for (const std::string& warning : point.warnings) run_log().of_run(LogLevel::Warning, warning);
  const std::string left = earlier ? "rounds" : "nothing";  // as rank 0 has found it
  if (comm->all_texts(left).front() == "nothing") {
    say_complete(*config, comm->rank());
    return 0;
  }
  comm = run_communicator(*config);
  return carry_out(*config, *comm, command_line, &point.from, *earlier);
}

}  // namespace fedhpc
