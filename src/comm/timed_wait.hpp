#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "comm/heartbeat.hpp"

namespace fedhpc {

/// Waits for other ranks until no rank anywhere has made progress for the length of the time-out.
class TimedWait {
 public:
  /// `heartbeat` is the world's: a rank may wait for one outside its own communicator.
  TimedWait(double timeout_seconds, std::shared_ptr<Heartbeat> heartbeat)
      : timeout_seconds_(timeout_seconds), heartbeat_(std::move(heartbeat)) {}

  /// Polls `ended()` until it is true. `what` is the `number`-th collective of its communicator.
  /// Throws Error telling where every rank is when patience is at its end.
  template <typename Ended>
  void wait_until(const Ended& ended, Call what, std::int64_t number) const {
    Wait wait{.begin = Heartbeat::Clock::now()};
    wait.listened = wait.begin;
    heartbeat_->waits(what, number);
    while (!ended()) between_looks(wait, what);
    heartbeat_->waits(Call::None, number);
    heartbeat_->add_wait(Heartbeat::Clock::now() - wait.begin);
    progress();
  }

  double timeout_seconds() const { return timeout_seconds_; }
  void progress() const { heartbeat_->progress(); }  ///< this rank has made progress
  Place& place() const { return heartbeat_->place(); }
  double seconds_waited() const { return heartbeat_->seconds_waited(); }

 private:
  struct Wait {
    Heartbeat::Clock::time_point begin;
    Heartbeat::Clock::time_point listened = {};
    std::int64_t looks = 0;
  };
  void between_looks(Wait& wait, Call what) const;

  double timeout_seconds_;
  std::shared_ptr<Heartbeat> heartbeat_;
};

}  // namespace fedhpc
