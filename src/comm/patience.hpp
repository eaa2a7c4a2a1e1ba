#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "comm/heartbeat.hpp"

namespace fedhpc {

/// How long a rank waits for others: until no rank anywhere has got on for the length of the
/// time-out.
class Patience {
 public:
  /// `heartbeat` is that of the world: a rank may wait for one outside its own communicator.
  Patience(double timeout_seconds, std::shared_ptr<Heartbeat> heartbeat)
      : timeout_seconds_(timeout_seconds), heartbeat_(std::move(heartbeat)) {}

  /// Looks whether something has ended, `ended()`, until it has. Throws Error naming the silent
  /// ranks when patience is at its end.
  template <typename Ended>
  void wait_until(const Ended& ended, const char* what) const {
    Wait wait{.begin = Heartbeat::Clock::now()};
    wait.listened = wait.begin;
    while (!ended()) between_looks(wait, what);
    progress();
  }

  double timeout_seconds() const { return timeout_seconds_; }
  void progress() const { heartbeat_->progress(); }  ///< this rank has got on

 private:
  struct Wait {
    Heartbeat::Clock::time_point begin;
    Heartbeat::Clock::time_point listened = {};
    std::int64_t looks = 0;
  };
  void between_looks(Wait& wait, const char* what) const;

  double timeout_seconds_;
  std::shared_ptr<Heartbeat> heartbeat_;
};

}  // namespace fedhpc
