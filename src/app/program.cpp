#include <algorithm>
#include <csignal>

#include "fedhpc/app/commands.hpp"
#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/core/log.hpp"
#include "fedhpc/core/options.hpp"

#include "core/thrown.hpp"
#include "io/at_exit.hpp"

namespace fedhpc {

namespace {

constexpr int kRefused = 2;  // found before the first round: nothing was written

/// The same on every rank.
int refuse(const Error& error) {
  run_log().of_run(LogLevel::Error, error.what());
  return kRefused;
}

}  // namespace

int program(int argc, char** argv) {
  h5::close_nothing_at_exit();
  const Arguments arguments(argv + 1, argv + argc);
  const StartOptions start = start_options(arguments.empty() ? "" : arguments.front(),
                                           {argv + std::min(argc, 2), argv + argc});
  const Session session(&argc, &argv, start.mpi, start.timeout);
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond its limit is an error to report like a full disk
  try {
    session.check();
    return dispatch(arguments, join({argv, argv + argc}, " "));
  } catch (const ConfigError& error) {
    return refuse(error);
  } catch (const DataError& error) {
    return refuse(error);
  } catch (...) {
    session.abort(what_was_thrown());
  }
}

}  // namespace fedhpc
