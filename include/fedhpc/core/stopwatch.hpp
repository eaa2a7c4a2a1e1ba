#pragma once

#include <chrono>
#include <memory>
#include <vector>

namespace fedhpc {

/// Adds up the seconds spent in one activity: wall time of the host, unless it only enqueues work
/// for a device. The device's time then counts, from the end of earlier work to the end of what the
/// activity enqueued. An activity may begin inside of itself; the outer one counts.
class Stopwatch {
 public:
  Stopwatch();
  ~Stopwatch();
  Stopwatch(Stopwatch&&) noexcept;
  Stopwatch& operator=(Stopwatch&&) noexcept;

  /// Measures from now on by events on the calling thread's current CUDA stream. Reading waits for
  /// the last of them.
  void use_device_events();

  void start();
  void stop();
  double seconds() const;
  /// Returns the seconds so far and starts again at 0.
  double lap();

 private:
  using Clock = std::chrono::steady_clock;
  struct Lap;  // of the device: from one event to another

  void read_laps() const;

  Clock::time_point begin_{};
  bool by_events_ = false;
  int running_ = 0;  // activities begun and not ended
  mutable double total_ = 0;
  mutable std::vector<std::unique_ptr<Lap>> laps_;  // not read yet
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
