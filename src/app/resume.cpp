#include "fedhpc/engine/resume.hpp"

#include <cstdio>
#include <optional>

#include "fedhpc/app/library.hpp"
#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/log.hpp"
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
  std::vector<Assignment> given = changes;
  std::erase_if(given,
                [](const Assignment& one) { return one.origin.level != Level::CommandLine; });
  return lookup(given, "run.output", checkpoint.path.empty() ? target : checkpoint.path);
}

}  // namespace

RunEnd resume(const std::string& path, const std::function<Given()>& read,
              const StartOptions& start, const Host& host) {
  const OneThread one_thread;
  LockFile claim;  // on rank 0, to the very end
  const StopSignals signals(host.afterwards);
  std::unique_ptr<Communicator> comm = world_communicator(start.timeout);
  Given given;  // the run as it is to be now; without a name: as it was, with these changes
  fail_together(*comm, [&] {
    given = read();
    if (comm->rank() == 0) claim = claim_output(output_of(path, given.assignments));
  });
  ResumePoint point = find_resume_point(path, *comm);
  std::unique_ptr<Config> config;
  std::optional<Earlier> earlier = Earlier::Replace;
  fail_together(*comm, [&] {
    config = given.name.empty() ? resumed_configuration(point, given.assignments)
                                : resumed_configuration(point, given.name, given.assignments);
    config->check_device();
    run_log().show(config->run.log_level);
    if (comm->rank() != 0) return;
    run_log().of_run(LogLevel::Warning, check_output(*config, "", claim));
    earlier = check_results(point, *config);
  });
  tell_notes(*config);
  for (const std::string& warning : point.warnings) run_log().of_run(LogLevel::Warning, warning);
  const std::string ended = comm->all_texts(point.ended).front();
  if (!ended.empty()) return nothing_to_do(*config, comm->rank(), ended, config->run.rounds);
  comm = run_communicator(*config);
  return carry_out(*config, *comm, host, &point.from, *earlier);
}

int resume_command(const Arguments& arguments, const std::string& command_line) {
  const auto read = [&] {
    if (arguments.empty() || arguments.front().starts_with("--")) {
      throw ConfigError(
          "fedhpc resume needs a result file or a checkpoint first: fedhpc resume RUN.h5 "
          "[CONFIG.ini] [--section.key=value ...]");
    }
    Given given;
    auto next = arguments.begin() + 1;
    if (next != arguments.end() && !next->starts_with("--")) given.name = *next++;
    if (!given.name.empty()) given.assignments = read_ini(given.name);
    const std::vector<Assignment> changes = parse_command_line({next, arguments.end()});
    given.assignments.insert(given.assignments.end(), changes.begin(), changes.end());
    return given;
  };
  return resume(arguments.empty() ? "" : arguments.front(), read,
                start_options("resume", arguments), {.command_line = command_line})
      .exit_code;
}

}  // namespace fedhpc
