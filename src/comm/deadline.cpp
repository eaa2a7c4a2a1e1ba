#include "comm/deadline.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>

#include "fedhpc/comm/launcher.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/core/log.hpp"
#include "fedhpc/core/stop_signals.hpp"

namespace fedhpc {

namespace {

constexpr double kLongest = 1e8;  // s; a clock cannot count to any number

}  // namespace

Deadline::Deadline(double seconds, const char* what)
    : watch_([this, seconds, what] {
        const std::chrono::duration<double> patience(std::min(seconds, kLongest));
        std::unique_lock lock(mutex_);
        if (met_changed_.wait_for(lock, patience, [this] { return met_; })) return;
        let_lower_ranks_speak(launcher().rank);
        run_log().of_rank(LogLevel::Error,
                          concat("no progress in ", what, " for ", seconds,
                                 " s: a rank has not come (run.collective_timeout)"));
        std::_Exit(1);
      }) {}

Deadline::~Deadline() {
  {
    const std::lock_guard lock(mutex_);
    met_ = true;
  }
  met_changed_.notify_one();
  watch_.join();
}

void let_lower_ranks_speak(int rank) {
  constexpr std::chrono::milliseconds kPerRank{500};  // a launcher takes long on a busy machine
  constexpr int kMost = 10;
  const auto until = std::chrono::steady_clock::now() + std::min(rank, kMost) * kPerRank;
  while (std::chrono::steady_clock::now() < until) {
    if (caught_signal() == SIGTERM) std::_Exit(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace fedhpc
