#pragma once

#include <chrono>

namespace fedhpc {

/// Seconds of wall time spent in one activity, added up over its uses.
class Stopwatch {
 public:
  void start() { begin_ = Clock::now(); }
  void stop() { total_ += std::chrono::duration<double>(Clock::now() - begin_).count(); }
  double seconds() const { return total_; }
  /// Gives the seconds so far and starts again at 0.
  double lap() {
    const double seconds = total_;
    total_ = 0;
    return seconds;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_{};
  double total_ = 0;
};

/// Runs a stopwatch for the length of a scope.
class Timed {
 public:
  explicit Timed(Stopwatch& watch) : watch_(watch) { watch_.start(); }
  ~Timed() { watch_.stop(); }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  Stopwatch& watch_;
};

}  // namespace fedhpc
