#pragma once

namespace fedhpc {

/// Catches SIGTERM, SIGINT, SIGUSR1 and, unless it is ignored, SIGHUP while it lives; a closed pipe
/// (SIGPIPE) ends nothing. It remembers the first one, so that work can stop where it may be taken
/// up again. The second goes to who caught it before, if anybody did, and else ends the process at
/// once with exit code 1. The same one again within 0.2 s is no second one, SIGINT apart: SLURM
/// sends SIGTERM twice when a job's time is up.
class StopSignals {
 public:
  /// What signals do when this one's life is over.
  enum class Afterwards {
    ProcessEnds,  ///< nothing once ignore_stop_signals() was called, else what they do by themselves
    AsBefore      ///< they go to who caught them before
  };

  explicit StopSignals(Afterwards afterwards = Afterwards::ProcessEnds);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  Afterwards afterwards_;
};

/// Ignores the same signals from now on, to the end of the process or of a StopSignals::AsBefore:
/// all is written.
void ignore_stop_signals();

/// Returns the signal caught since a StopSignals was made, 0 if there was none.
int caught_signal();

}  // namespace fedhpc
