#include "fedhpc/app/commands.hpp"
#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/log.hpp"
#include "fedhpc/core/stop_signals.hpp"

#include "app/carry_out.hpp"
#include "app/configuration.hpp"

namespace fedhpc {

int run_command(const Arguments& given, const std::string& command_line) {
  pin_threads();
  Arguments arguments = given;
  const bool force = std::erase(arguments, "--force") > 0;
  LockFile claim;  // on rank 0, to the very end
  const StopSignals signals;
  std::unique_ptr<Communicator> comm = world_communicator(start_options("run", arguments).timeout);
  std::unique_ptr<Config> config;
  fail_together(*comm, [&] {
    config = read_configuration(arguments, "run");
    run_log().show(config->run.log_level);
    if (comm->rank() != 0) return;
    claim = claim_output(config->run.output);
    run_log().of_run(LogLevel::Warning, check_output(*config, arguments.front(), claim));
  });
  tell_notes(*config);
  comm = run_communicator(*config);
  return carry_out(*config, *comm, command_line, nullptr,
                   force ? Earlier::Replace : Earlier::SetAside);
}

}  // namespace fedhpc
