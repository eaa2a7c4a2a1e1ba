#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "fedhpc/engine/config.hpp"
#include "fedhpc/engine/experiment.hpp"

namespace fedhpc {

/// Shows a run's progress on standard output of rank 0: a bar that redraws itself on a terminal,
/// one line per evaluation elsewhere.
class Progress {
 public:
  /// `done` counts rounds of an earlier part of the run, which booked so many bytes.
  Progress(ProgressKind kind, std::int64_t rounds, std::int64_t done = 0, double bytes = 0);
  void show(const RoundReport& report);
  /// Tells how to resume a run that stops after this report.
  void interrupted(const RoundReport& report, const std::string& results) const;
  /// Tells where the result of a run lies that ends after this report, and that it has diverged.
  void complete(const RoundReport& report, const std::string& results) const;

 private:
  using Clock = std::chrono::steady_clock;

  std::string line(const RoundReport& report, double seconds) const;

  ProgressKind kind_;
  std::int64_t rounds_;
  std::int64_t done_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point drawn_{};
  double accuracy_;
  double personal_ = 0;         ///< accuracy of own models
  bool only_personal_ = false;  ///< `accuracy_` is that, for want of a global model
  double rmse_;                 // NaN where there is an accuracy
  double loss_;
  double bytes_;
};

/// Returns a path as a shell takes it: between quotes where it holds more than letters, digits and
/// ._/+:=@%-.
std::string shell_word(const std::string& path);

/// Says that a run has no rounds left: it is "complete" with so many, or has "diverged".
void say_over(const RunOptions& run, const std::string& status, std::int64_t rounds);

/// "1.5 MB": bytes with a decimal unit.
std::string readable_bytes(double bytes);

/// "1:02:03" or "02:03".
std::string readable_seconds(double seconds);

/// Lists the build and every key with its value and the source of it, one per line.
std::string start_up_table(const Config& config, int ranks, std::int64_t block_width);

}  // namespace fedhpc
