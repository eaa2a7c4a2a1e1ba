#pragma once

namespace fedhpc {

/// Catches SIGTERM, SIGINT and SIGUSR1 while it lives. It remembers the first one, so that work can
/// stop where it may be taken up again. The second ends the process at once with exit code 1.
/// SIGTERM again within 0.2 s is no second one: SLURM sends it twice when a job's time is up.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
};

/// Ignores the same signals from now on, to the end of the process: all is written.
void ignore_stop_signals();

/// Returns the signal caught since a StopSignals was made, 0 if there was none.
int caught_signal();

}  // namespace fedhpc
