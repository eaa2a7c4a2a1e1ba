#include "fedhpc/app/library.hpp"
#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/log.hpp"

#include "app/carry_out.hpp"
#include "app/configuration.hpp"

namespace fedhpc {

RunEnd run(const std::function<Given()>& read, const StartOptions& start, bool force,
           const Host& host) {
  const OneThread one_thread;
  LockFile claim;  // on rank 0, to the very end
  const StopSignals signals(host.afterwards);
  std::unique_ptr<Communicator> comm = world_communicator(start.timeout);
  std::unique_ptr<Config> config;
  fail_together(*comm, [&] {
    const Given given = read();
    config = configuration_of(given);
    run_log().show(config->run.log_level);
    if (comm->rank() != 0) return;
    claim = claim_output(config->run.output);
    run_log().of_run(LogLevel::Warning, check_output(*config, given.name, claim));
  });
  tell_notes(*config);
  comm = run_communicator(*config);
  const Earlier earlier = force ? Earlier::Replace : Earlier::SetAside;
  return carry_out(*config, *comm, host, nullptr, earlier);
}

int run_command(const Arguments& given, const std::string& command_line) {
  Arguments arguments = given;
  const bool force = std::erase(arguments, "--force") > 0;
  return run([&] { return given_by(arguments, "run"); }, start_options("run", arguments), force,
             {.command_line = command_line})
      .exit_code;
}

}  // namespace fedhpc
