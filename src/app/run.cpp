#include <cmath>
#include <cstdio>

#include "fedhpc/app/commands.hpp"
#include "fedhpc/comm/device_communicator.hpp"
#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/stop_signals.hpp"
#include "fedhpc/engine/checkpoint.hpp"
#include "fedhpc/engine/experiment.hpp"
#include "fedhpc/engine/progress.hpp"
#include "fedhpc/engine/recorder.hpp"

#include "app/carry_out.hpp"
#include "app/configuration.hpp"

namespace fedhpc {

namespace {

constexpr int kInterrupted = 75;  // stopped by a signal, to be taken up by resume

void warn_once(bool& said, bool condition, const std::string& message) {
  if (said || !condition) return;
  said = true;
  std::fprintf(stderr, "fedhpc: warning: %s\n", message.c_str());
}

/// What the user has to know before the first round.
void introduce(const Experiment& experiment, const Resumption* from, int ranks,
               const std::string& earlier_result) {
  const Config& config = experiment.config();
  if (config.run.progress != ProgressKind::None) {
    std::fputs(start_up_table(config, ranks, experiment.block_width()).c_str(), stdout);
    if (from != nullptr) {
      const bool inside = experiment.partial() != nullptr;
      std::printf("going on %s round %lld from %s\n", inside ? "inside" : "after",
                  static_cast<long long>(from->round + (inside ? 1 : 0)), from->checkpoint.c_str());
    }
    if (!earlier_result.empty()) {
      std::printf("the earlier result is now %s\n", shell_word(earlier_result).c_str());
    }
    std::fflush(stdout);  // a log shows it while the first rounds go on
  }
  for (const std::string& folder : folders_of_copies()) {
    std::fprintf(stderr,
                 "fedhpc: note: unpacked data are kept in %s for later runs; FEDHPC_CACHE=off "
                 "keeps none\n",
                 folder.c_str());
  }
  bool warned = false;
  const std::int64_t leaked = leaked_samples(experiment.partition());
  warn_once(warned, leaked > 0,
            concat(leaked, " training samples of one client are test samples of another"));
}

/// Says once that a loss has left the numbers.
class LossWarning {
 public:
  void look_at(const RoundReport& report) {
    warn_once(said_, std::isinf(report.metrics.train_loss),
              concat("the training loss is infinite since round ", report.round,
                     "; train.lr may be too large"));
    warn_once(said_, report.train_samples > 0 && std::isnan(report.metrics.train_loss),
              concat("the training loss is not a number since round ", report.round,
                     "; train.lr may be too large"));
  }

 private:
  bool said_ = false;
};

}  // namespace

std::unique_ptr<Communicator> run_communicator(const Config& config) {
  std::unique_ptr<Communicator> world = world_communicator(config.run.collective_timeout);
  if (config.run.device != DeviceKind::Cuda) return world;
  return device_communicator(std::move(world), gpu_library(), [](const std::string& message) {
    std::fprintf(stderr, "fedhpc: warning: %s\n", message.c_str());
  });
}

void warn(const std::string& message) {
  if (!message.empty()) std::fprintf(stderr, "fedhpc: warning: %s\n", message.c_str());
}

int carry_out(Config& config, Communicator& comm, const std::string& command_line,
              const Resumption* from, Earlier earlier) {
  Experiment experiment(config, comm, from);
  experiment.prepare();
  Recorder recorder(experiment, comm, command_line, from, earlier);
  warn(recorder.warning());
  Checkpointer checkpointer(experiment, comm, from);
  const bool speaks = comm.rank() == 0;
  if (speaks) introduce(experiment, from, comm.size(), recorder.earlier_result());

  Progress progress(config.run.progress, config.run.rounds, from == nullptr ? 0 : from->round);
  LossWarning loss;
  bool interrupted = false;
  const auto observe = [&](const RoundReport& report) {
    if (!report.left) recorder.record(report);
    interrupted = report.agreed.stop && report.round < config.run.rounds;
    if (interrupted) recorder.write_model(experiment.current_model());
    if (interrupted || report.agreed.checkpoint) {
      checkpointer.write(report.round, recorder.file());
    }
    if (!speaks) return;
    if (!report.left) {
      progress.show(report);
      loss.look_at(report);
    }
    if (interrupted) progress.interrupted(report, config.run.output);
  };
  const auto ask = [&](std::int64_t round) {
    return Wish{.stop = caught_signal() != 0, .checkpoint = checkpointer.due(round)};
  };
  try {
    experiment.run(observe, ask, [] { return caught_signal() != 0; });
    recorder.finish(interrupted ? "interrupted" : "complete");
    if (!interrupted) checkpointer.keep_newest();
    comm.barrier();  // MPI's own end has no deadline
    if (speaks && !interrupted) progress.complete(config.run.output);
  } catch (...) {
    recorder.fail();
    throw;
  }
  return interrupted ? kInterrupted : 0;
}

int run_command(const Arguments& given, const std::string& command_line) {
  pin_threads();
  Arguments arguments = given;
  const bool force = std::erase(arguments, "--force") > 0;
  LockFile claim;  // on rank 0, to the very end
  const StopSignals signals;
  std::unique_ptr<Communicator> comm = world_communicator(kStartTimeout);
  std::unique_ptr<Config> config;
  together(*comm, [&] {
    config = read_configuration(arguments, "run");
    if (comm->rank() != 0) return;
    claim = claim_output(config->run.output);
    warn(check_output(*config, arguments.front(), claim));
  });
  comm = run_communicator(*config);
  return carry_out(*config, *comm, command_line, nullptr,
                   force ? Earlier::Replace : Earlier::SetAside);
}

}  // namespace fedhpc
