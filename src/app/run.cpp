#include <cmath>
#include <cstdio>

#include "fedhpc/app/commands.hpp"
#include "fedhpc/comm/session.hpp"
#include "fedhpc/engine/experiment.hpp"
#include "fedhpc/engine/progress.hpp"
#include "fedhpc/engine/recorder.hpp"

#include "app/configuration.hpp"

namespace fedhpc {

namespace {

constexpr double kStartTimeout = 600;  // s, until the configuration says otherwise

void warn_once(bool& said, bool condition, const std::string& message) {
  if (said || !condition) return;
  said = true;
  std::fprintf(stderr, "fedhpc: warning: %s\n", message.c_str());
}

}  // namespace

int run_command(const Arguments& arguments, const std::string& command_line) {
  pin_threads();
  std::unique_ptr<Communicator> comm = world_communicator(kStartTimeout);
  std::unique_ptr<Config> config;
  together(*comm, [&] {
    config = read_configuration(arguments, "run");
    if (comm->rank() == 0) check_output(*config, arguments.front());
  });
  comm = world_communicator(config->run.collective_timeout);

  Experiment experiment(*config, *comm);
  Recorder recorder(experiment, *comm, command_line);
  const bool speaks = comm->rank() == 0;
  if (speaks && config->run.progress != ProgressKind::None) {
    std::fputs(start_up_table(*config, comm->size(), experiment.block_width()).c_str(), stdout);
  }
  bool warned_leak = false;
  const std::int64_t leaked = leaked_samples(experiment.partition());
  warn_once(warned_leak, speaks && leaked > 0,
            concat(leaked, " training samples of one client are test samples of another"));

  Progress progress(config->run.progress, config->run.rounds);
  bool warned_loss = false;
  try {
    experiment.run([&](const RoundReport& report) {
      recorder.record(report);
      if (!speaks) return;
      progress.show(report);
      warn_once(warned_loss, std::isinf(report.metrics.train_loss),
                concat("the training loss is infinite since round ", report.round,
                       "; train.lr may be too large"));
      warn_once(warned_loss, report.train_samples > 0 && std::isnan(report.metrics.train_loss),
                concat("the training loss is not a number since round ", report.round,
                       "; train.lr may be too large"));
    });
    recorder.complete();
  } catch (...) {
    recorder.fail();
    throw;
  }
  return 0;
}

}  // namespace fedhpc
