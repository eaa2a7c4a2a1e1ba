#include "fedhpc/core/stop_signals.hpp"

#include <array>
#include <atomic>
#include <csignal>
#include <unistd.h>

namespace fedhpc {

namespace {

constexpr std::array<int, 3> kSignals{SIGTERM, SIGINT, SIGUSR1};

// A signal handler is called with nothing but the signal's number: what it leaves behind has to be
// found by name.
std::atomic<int> caught{0};
static_assert(std::atomic<int>::is_always_lock_free, "a handler must not wait for a lock");

extern "C" void remember_signal(int number) {
  int none = 0;
  if (!caught.compare_exchange_strong(none, number)) _exit(1);
}

void handle_with(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;  // files are read and written to the end all the same
  sigemptyset(&action.sa_mask);
  for (const int number : kSignals) sigaction(number, &action, nullptr);
}

}  // namespace

StopSignals::StopSignals() {
  caught = 0;
  handle_with(remember_signal);
}

StopSignals::~StopSignals() { handle_with(SIG_DFL); }

int caught_signal() { return caught; }

}  // namespace fedhpc
