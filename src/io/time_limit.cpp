#include "fedhpc/io/time_limit.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

constexpr double kPatience = 15;  // the limit by the clock over that of the processor
constexpr char kEnd = '\n';       // says that the text before it is whole

[[noreturn]] void work_and_tell(int out, double limit_seconds,
                                const std::function<std::string()>& work) {
  // It ends by itself where nobody is left who would end it.
  std::signal(SIGALRM, SIG_DFL);
  alarm(static_cast<unsigned>(kPatience * limit_seconds) + 2);
  const auto seconds = static_cast<rlim_t>(std::ceil(limit_seconds));
  const rlimit processor{.rlim_cur = seconds, .rlim_max = seconds};
  setrlimit(RLIMIT_CPU, &processor);
  // A signal for the run, which the whole group gets, is not for this process: it ends with the run.
  for (const int number : {SIGTERM, SIGINT, SIGUSR1, SIGHUP}) std::signal(number, SIG_IGN);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // A crash is an answer too: no report by MPI, no core dump.
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL}) std::signal(number, SIG_DFL);
  const rlimit none{.rlim_cur = 0, .rlim_max = 0};
  setrlimit(RLIMIT_CORE, &none);
  try {
    const std::string text = work() + kEnd;
    std::size_t sent = 0;
    while (sent < text.size()) {
      const ssize_t count = write(out, text.data() + sent, text.size() - sent);
      if (count <= 0) break;
      sent += static_cast<std::size_t>(count);
    }
  } catch (...) {
    _exit(1);
  }
  _exit(0);
}

/// What arrives until the other end closes or the time is over.
std::string receive(int in, double limit_seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(limit_seconds);
  std::string text;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0) return text;
    pollfd waiting{.fd = in, .events = POLLIN, .revents = 0};
    const int ready = poll(&waiting, 1, static_cast<int>(left.count()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return text;
    std::array<char, 4096> part{};
    const ssize_t count = read(in, part.data(), part.size());
    if (count <= 0) return text;
    text.append(part.data(), static_cast<std::size_t>(count));
  }
}

}  // namespace

std::optional<std::string> within_time(double limit_seconds,
                                       const std::function<std::string()>& work) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) throw Error("no pipe to a child process can be made");
  const pid_t child = fork();
  if (child < 0) {
    close(ends[0]);
    close(ends[1]);
    throw Error("no child process can be started");
  }
  if (child == 0) work_and_tell(ends[1], limit_seconds, work);
  close(ends[1]);
  std::string text = receive(ends[0], kPatience * limit_seconds);
  close(ends[0]);
  kill(child, SIGKILL);
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) continue;
  if (!text.ends_with(kEnd)) return std::nullopt;
  text.pop_back();
  return text;
}

}  // namespace fedhpc
