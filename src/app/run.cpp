#include "fedhpc/app/library.hpp"
#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/log.hpp"
#include "fedhpc/engine/resume.hpp"
#include "fedhpc/io/checkpoint_files.hpp"
#include "fedhpc/io/durable.hpp"

#include "app/carry_out.hpp"
#include "app/configuration.hpp"

namespace fedhpc {

namespace {

/// The run's result file if it has not ended and a checkpoint lies beside it; else empty. Collective.
std::string output_to_resume(const std::function<Given()>& read, const StartOptions& start) {
  const std::unique_ptr<Communicator> comm = world_communicator(start.timeout);
  std::string found;
  fail_together(*comm, [&] {
    const std::unique_ptr<Config> config = configuration_of(read());
    const std::string& output = config->run.output;
    if (comm->rank() != 0 || end_of_run(output, *config)) return;
    if (!checkpoints_of(link_target(output)).empty()) found = output;
  });
  return comm->all_texts(found).front();
}

}  // namespace

RunEnd run(const std::function<Given()>& read_it, const StartOptions& start, Earlier earlier,
           const Host& host) {
  std::optional<Given> given;
  const auto read = [&] {
    if (!given) given = read_it();  // a pipe can be read but once
    return *given;
  };
  if (earlier == Earlier::Keep) {
    const std::string output = output_to_resume(read, start);
    if (!output.empty()) return resume(output, read, start, host);
  }
  const OneThread one_thread;
  LockFile claim;  // on rank 0, to the very end
  const StopSignals signals(host.afterwards);
  std::unique_ptr<Communicator> comm = world_communicator(start.timeout);
  std::unique_ptr<Config> config;
  fail_together(*comm, [&] {
    config = configuration_of(read());
    run_log().show(config->run.log_level);
    if (comm->rank() != 0) return;
    claim = claim_output(config->run.output);
    run_log().of_run(LogLevel::Warning, check_output(*config, given->name, claim));
  });
  tell_notes(*config);
  comm = run_communicator(*config);
  return carry_out(*config, *comm, host, nullptr, earlier);
}

int run_command(const Arguments& given, const std::string& command_line) {
  Arguments arguments = given;
  const bool force = std::erase(arguments, "--force") > 0;
  const bool go_on = std::erase(arguments, "--go-on") > 0;
  if (force && go_on) throw ConfigError("--force replaces a result and --go-on keeps it; give one");
  const Earlier earlier = force ? Earlier::Replace : go_on ? Earlier::Keep : Earlier::SetAside;
  return run([&] { return given_by(arguments, "run"); }, start_options("run", arguments), earlier,
             {.command_line = command_line})
      .exit_code;
}

}  // namespace fedhpc
