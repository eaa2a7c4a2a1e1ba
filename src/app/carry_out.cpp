#include "app/carry_out.hpp"

#include <cmath>
#include <cstdio>
#include <optional>

#include <ATen/ops/full.h>

#include "fedhpc/core/log.hpp"
#include "fedhpc/core/stop_signals.hpp"
#include "fedhpc/engine/checkpoint.hpp"
#include "fedhpc/engine/experiment.hpp"
#include "fedhpc/engine/progress.hpp"
#include "fedhpc/engine/recorder.hpp"
#include "fedhpc/engine/resume.hpp"

#include "app/configuration.hpp"
#include "app/still_at_work.hpp"
#include "core/thrown.hpp"

namespace fedhpc {

namespace {

constexpr int kInterrupted = 75;  // stopped by a signal, to be taken up by resume
constexpr int kDiverged = 1;      // where run.stop_on_divergence asks for it

/// What the user has to know before the first round.
void introduce(const Experiment& experiment, const Resumption* from, int ranks,
               const std::string& earlier_result) {
  const Config& config = experiment.config();
  if (config.run.progress != ProgressKind::None) {
    std::fputs(start_up_table(config, ranks, experiment.parts().block_width).c_str(), stdout);
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
    run_log().of_run(LogLevel::Note, concat("unpacked data are kept in ", folder,
                                            " for later runs; FEDHPC_CACHE=off keeps none"));
  }
  if (const std::int64_t leaked = leaked_samples(experiment.partition()); leaked > 0) {
    run_log().of_run(LogLevel::Warning,
                     concat(leaked, " training samples are test or validation samples as well"));
  }
}

/// What was chosen for a run, and which rank has what.
void tell_choices(const Experiment& experiment, const std::vector<std::string>& hosts) {
  if (!run_log().shows(LogLevel::Debug)) return;
  const Parts& parts = experiment.parts();
  run_log().debug(experiment.config().algorithm_name, " on ", parts.context.device, ", ",
                  parts.model->layout()->size(), " numbers a client, blocks of ", parts.block_width,
                  ", rounds of up to ", parts.participants_limit(), " of ",
                  parts.partition.clients(), " clients");
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const auto clients = parts.placement().clients_of_rank(static_cast<int>(rank));
    run_log().debug("rank ", rank, " on ", hosts[rank], " has ", clients.size(), " clients",
                    clients.empty() ? "" : concat(", ", clients.front(), " to ", clients.back()));
  }
}

/// A loss as a sentence gives it.
std::string loss_text(double loss) { return std::isnan(loss) ? "not a number" : concat(loss); }

/// Why nobody drawn into a round has trained; empty where somebody takes steps.
std::string why_idle(const Experiment& experiment, const std::vector<std::int64_t>& cohort) {
  bool samples = false;
  for (const std::int64_t client : cohort) {
    if (experiment.parts().steps_of(client) > 0) return {};
    samples |= experiment.partition().train.count(client) > 0;
  }
  return samples
             ? "batch normalisation needs batches of two samples or more, and the clients drawn "
               "have none; give clients more samples or raise train.batch_size"
             : "the clients drawn have no training samples";
}

/// Why a round's models have no score.
std::string why_unscored(const Experiment& experiment) {
  const Parts& parts = experiment.parts();
  const bool by_server = parts.server_shard && has_global(parts.method().traits().models);
  const bool tested = by_server || !parts.partition.test.samples.empty();
  return parts.loss.of_sequences() && tested
             ? "no place counts in the test samples of those that the method evaluates: the label "
               "of each is train.ignored_label"
             : "those that the method evaluates have no test samples; clients have their own with "
               "data.split = client and data.train_fraction below 1";
}

/// Says once that a run diverges, once that nobody trains, and once that nothing is evaluated.
class RoundWarnings {
 public:
  explicit RoundWarnings(const Experiment& experiment) : experiment_(experiment) {}

  void look_at(const RoundReport& report) {
    warn_once(
        diverged_, report.diverged_since > 0,
        concat(
            "the run diverges since round ", report.diverged_since,
            ": a loss or a value of the global model is not finite, or a loss is above 10^4 times "
            "that of guessing (training loss ",
            loss_text(report.metrics.train_loss),
            report.global_scored ? ", global loss " + loss_text(report.metrics.global_loss) : "",
            "); a rate (train.lr, or one of the method's own) may be too large, or features are "
            "not scaled"));
    warn_once(
        unscored_, report.evaluated && !report.global_scored && !report.personal_scored,
        concat("no model was scored after round ", report.round, ": ", why_unscored(experiment_)));
    if (idle_ || report.train_samples > 0) return;
    const std::string reason = why_idle(experiment_, *report.cohort);
    warn_once(idle_, !reason.empty(),
              concat("no sample trained in round ", report.round, ", its loss is NaN: ", reason));
  }

 private:
  static void warn_once(bool& said, bool condition, const std::string& message) {
    if (said || !condition) return;
    said = true;
    run_log().of_run(LogLevel::Warning, message);
  }

  const Experiment& experiment_;
  bool diverged_ = false;
  bool idle_ = false;
  bool unscored_ = false;
};

/// Throws the error in hand again, in front of it where in its work this rank was.
[[noreturn]] void throw_with(const std::string& place) {
  try {
    throw;
  } catch (const ConfigError&) {
    throw;
  } catch (const DataError&) {
    throw;
  } catch (...) {
    throw Error(concat(place, ": ", what_was_thrown()));
  }
}

/// Where a round's time went.
void tell_seconds(const RoundReport& report) {
  const RoundMetrics& metrics = report.metrics;
  run_log().debug("round ", report.round, " took ", metrics.wall_seconds,
                  " s; of rank 0: training ", metrics.seconds_train, " s, links and sums ",
                  metrics.seconds_aggregate, " s, evaluation ", metrics.seconds_evaluate, " s");
}

/// What rank 0 tells of a run: to the user, and to an onlooker.
class Speaker {
 public:
  Speaker(const Experiment& experiment, const Host& host, std::int64_t done, double bytes_before)
      : experiment_(experiment),
        onlooker_(host.onlooker),
        done_(done),
        progress_(experiment.config().run.progress, experiment.config().run.rounds, done,
                  bytes_before),
        warnings_(experiment) {}

  void begin() {
    if (onlooker_.begin) onlooker_.begin(experiment_, done_);
  }
  void round(const RoundReport& report) {
    progress_.show(report);
    warnings_.look_at(report);
    tell_seconds(report);
    if (onlooker_.round) onlooker_.round(experiment_, report);
  }
  void interrupted(const RoundReport& last) const {
    progress_.interrupted(last, experiment_.config().run.output);
  }
  void complete(const RoundReport& last) const {
    progress_.complete(last, experiment_.config().run.output);
  }

 private:
  const Experiment& experiment_;
  const Onlooker& onlooker_;
  std::int64_t done_;
  Progress progress_;
  RoundWarnings warnings_;
};

/// carry_out, whose errors do not yet say where they come from, nor its end of signals.
RunEnd run_experiment(Config& config, Communicator& comm, const Host& host, const Resumption* from,
                      Earlier earlier) {
  const bool speaks = comm.rank() == 0;
  std::optional<StillAtWork> notice;
  const bool shows = speaks && config.run.progress != ProgressKind::None;
  if (shows) notice.emplace("preparing the data and the model");
  Experiment experiment(config, comm, from);
  std::optional<RunStatus> over;
  if (earlier == Earlier::Keep) over = is_over(config.run.output, experiment, comm);
  if (over) return nothing_to_do(config, comm.rank(), over->status, over->rounds);
  in_rounds([&] { experiment.prepare(); });
  notice.reset();
  Recorder recorder(experiment, comm, host.command_line, from, earlier);
  Checkpointer checkpointer(experiment, comm, from);
  if (speaks) {
    introduce(experiment, from, comm.size(), recorder.earlier_result());
    tell_choices(experiment, recorder.hosts());
  }
  Speaker speaker(experiment, host, from == nullptr ? 0 : from->round, recorder.bytes_before());
  bool interrupted = false;
  RoundReport last{.round = from == nullptr ? 0 : from->round,
                   .diverged_since = experiment.diverged_since()};
  std::string status;
  const auto observe = [&](const RoundReport& report) {
    if (!report.left) recorder.record(report);
    last = report;
    const bool early = report.round < config.run.rounds;
    const bool stopped = report.diverged_since > 0 && config.run.stop_on_divergence;
    interrupted = report.agreed.stop && early && !stopped;
    const bool ends = interrupted || (stopped && early);
    if (ends) recorder.write_models(experiment.current_model(), !report.left);
    // Checkpoints from before it diverged are worth more than one from after.
    const bool keep = interrupted || (report.agreed.checkpoint && !stopped);
    if (keep) checkpointer.write(report.round, recorder.file());
    if (speaks && !report.left) speaker.round(report);
    if (speaks && interrupted) speaker.interrupted(report);
  };
  const auto ask = [&](std::int64_t round) {
    const bool stop = caught_signal() != 0 || (host.onlooker.stop && host.onlooker.stop());
    return RoundRequest{.stop = stop, .checkpoint = checkpointer.due(round)};
  };
  try {
    if (speaks) speaker.begin();
    in_rounds([&] {
      if (last.round == config.run.rounds) recorder.write_personal_models();  // a checkpoint's end
      experiment.run(observe, ask, [] { return caught_signal() != 0; });
    });
    status = interrupted ? "interrupted" : last.diverged_since > 0 ? "diverged" : "complete";
    recorder.finish(status);
    ignore_stop_signals();
    if (last.round == config.run.rounds) checkpointer.keep_newest();
    comm.barrier();  // MPI's own end has no deadline
    if (speaks && !interrupted) speaker.complete(last);
  } catch (...) {
    recorder.fail();
    throw;
  }
  const bool in_vain = last.diverged_since > 0 && config.run.stop_on_divergence;
  return {interrupted ? kInterrupted : in_vain ? kDiverged : 0, status, config.run.output};
}

}  // namespace

void tell_notes(const Config& config) {
  for (const std::string& note : config.notes()) run_log().of_run(LogLevel::Note, note);
}

RunEnd nothing_to_do(const Config& config, int rank, const std::string& status,
                     std::int64_t rounds) {
  if (rank == 0) say_over(config.run, status, rounds);
  const bool in_vain = status == "diverged" && config.run.stop_on_divergence;
  return {in_vain ? kDiverged : 0, "", config.run.output};
}

RunEnd carry_out(Config& config, Communicator& comm, const Host& host, const Resumption* from,
                 Earlier earlier) {
  require_one_build(build_info(), comm);
  require_one_configuration(config, comm);
  const auto place = [&] { return concat(config.algorithm_name, ", ", text(comm.place())); };
  const Log::Where where(run_log(), place);
  try {
    RunEnd end = run_experiment(config, comm, host, from, earlier);
    Tensor signal = at::full({1}, caught_signal(), at::kLong);  // of all ranks, which stop together
    comm.max_(signal);
    end.signal = static_cast<int>(signal.item<std::int64_t>());
    return end;
  } catch (...) {
    throw_with(place());
  }
}

}  // namespace fedhpc
