#include "fedhpc/core/stop_signals.hpp"

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <unistd.h>

namespace fedhpc {

namespace {

constexpr std::array<int, 4> kSignals{SIGTERM, SIGINT, SIGUSR1, SIGHUP};

// A signal handler is called with nothing but the signal's number: what it leaves behind has to be
// found by name.
std::atomic<int> caught{0};
std::atomic<std::int64_t> caught_at{0};  // ns
std::atomic<bool> over{false};           // all is written
std::array<struct sigaction, kSignals.size()> before{};
struct sigaction before_of_pipes {};
static_assert(std::atomic<int>::is_always_lock_free &&
                  std::atomic<std::int64_t>::is_always_lock_free,
              "a handler must not wait for a lock");

// When a job's time is up SLURM sends its steps SIGTERM twice at once, meaning one. Linux sends a
// process's children the signal for its death once for each of its threads.
constexpr std::int64_t kSameSignal = 200'000'000;  // ns

std::int64_t monotonic_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

extern "C" void remember_signal(int number) {
  const std::int64_t now = monotonic_now();
  if (caught == 0) caught_at = now;
  int first = 0;
  if (caught.compare_exchange_strong(first, number)) return;
  if (number == first && number != SIGINT && now - caught_at < kSameSignal) return;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    void (*const other)(int) = before[i].sa_handler;
    if (kSignals[i] == number && other != SIG_DFL && other != SIG_IGN) return other(number);
  }
  _exit(1);
}

void handle_with(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;  // files are read and written to the end all the same
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    // nohup's, which outlives the terminal. A shell ignores SIGINT for what it puts behind it.
    const bool kept = kSignals[i] == SIGHUP && before[i].sa_handler == SIG_IGN;
    if (!kept) sigaction(kSignals[i], &action, nullptr);
  }
}

}  // namespace

StopSignals::StopSignals(Afterwards afterwards) : afterwards_(afterwards) {
  caught = 0;
  over = false;
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], nullptr, &before[i]);
  handle_with(remember_signal);
  struct sigaction ignored {};
  ignored.sa_handler = SIG_IGN;  // what nobody reads any more is not shown
  sigemptyset(&ignored.sa_mask);
  sigaction(SIGPIPE, &ignored, &before_of_pipes);
}

StopSignals::~StopSignals() {
  if (afterwards_ == Afterwards::AsBefore) {
    for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before[i], nullptr);
    sigaction(SIGPIPE, &before_of_pipes, nullptr);
  } else if (!over) {
    handle_with(SIG_DFL);
  }
}

void ignore_stop_signals() {
  over = true;
  handle_with(SIG_IGN);
}

int caught_signal() { return caught; }

}  // namespace fedhpc
