#include "comm/timed_wait.hpp"

#include <algorithm>
#include <sched.h>
#include <thread>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

void TimedWait::between_looks(Wait& wait, Call what) const {
  constexpr int kSpins = 256;  // some 20 us: a small message is through by then
  // Later on ranks that share a core get it, most looks stay cheap.
  constexpr int kLooksPerYield = 16;
  constexpr std::chrono::milliseconds kListening{10};
  const std::int64_t look = wait.looks++;
  if (look < kSpins || look % kLooksPerYield != 0) return;
  const auto now = Heartbeat::Clock::now();
  if (now - wait.listened > kListening) {
    wait.listened = now;
    heartbeat_->listen();
    const std::chrono::duration<double> still =
        now - std::max(wait.begin, heartbeat_->last_progress());
    if (still.count() > timeout_seconds_) {
      throw Error(concat("no progress in ", name(what), " for ", timeout_seconds_,
                         " s: ", heartbeat_->story(), " (run.collective_timeout)"));
    }
  }
  // Long waits must not keep a core from the rank that is waited for.
  if (now - wait.begin > std::chrono::milliseconds(50)) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  } else {
    sched_yield();
  }
}

}  // namespace fedhpc
