#include "fedhpc/engine/resume.hpp"

#include <chrono>
#include <cstdio>
#include <thread>

#include "fedhpc/app/commands.hpp"
#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/stop_signals.hpp"
#include "fedhpc/engine/recorder.hpp"
#include "fedhpc/io/file_lock.hpp"

#include "app/carry_out.hpp"
#include "app/configuration.hpp"

namespace fedhpc {

namespace {

/// The process of a run just killed may still be on its way out, and holds its file until then.
void wait_while_locked(const std::string& path) {
  constexpr std::chrono::seconds kPatience{5};
  const auto begin = std::chrono::steady_clock::now();
  while (is_locked(path) && std::chrono::steady_clock::now() - begin < kPatience) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace

int resume_command(const Arguments& arguments, const std::string& command_line) {
  pin_threads();
  const StopSignals signals;
  std::unique_ptr<Communicator> comm = world_communicator(kStartTimeout);
  std::vector<Assignment> changes;
  together(*comm, [&] {
    if (arguments.empty() || arguments.front().starts_with("--")) {
      throw ConfigError(
          "fedhpc resume needs a result file or a checkpoint first: fedhpc resume RUN.h5 "
          "[--section.key=value ...]");
    }
    changes = parse_command_line({arguments.begin() + 1, arguments.end()});
  });
  ResumePoint point = find_resume_point(arguments.front(), *comm);
  std::unique_ptr<Config> config;
  together(*comm, [&] {
    config = resumed_configuration(point, changes);
    if (comm->rank() != 0) return;
    wait_while_locked(config->run.output);
    check_output(*config, "");
    check_results(point, *config);
  });
  for (const std::string& warning : point.warnings) {
    std::fprintf(stderr, "fedhpc: warning: %s\n", warning.c_str());
  }
  comm = run_communicator(*config);
  return carry_out(*config, *comm, command_line, &point.from);
}

}  // namespace fedhpc
