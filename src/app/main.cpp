#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include <ATen/core/Tensor.h>

#include "fedhpc/app/commands.hpp"
#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/core/log.hpp"
#include "fedhpc/core/options.hpp"

namespace {

constexpr int kRefused = 2;  // found before the first round: nothing was written

/// The same on every rank.
int refuse(const fedhpc::Error& error) {
  fedhpc::run_log().of_run(fedhpc::LogLevel::Error, error.what());
  return kRefused;
}

int run(int argc, char** argv) {
  const fedhpc::Arguments arguments(argv + 1, argv + argc);
  const fedhpc::StartOptions start = fedhpc::start_options(
      arguments.empty() ? "" : arguments.front(), {argv + std::min(argc, 2), argv + argc});
  const fedhpc::Session session(&argc, &argv, start.mpi, start.timeout);
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond its limit is an error to report like a full disk
  try {
    session.check();
    return fedhpc::dispatch(arguments, fedhpc::join({argv, argv + argc}, " "));
  } catch (const fedhpc::ConfigError& error) {
    return refuse(error);
  } catch (const fedhpc::DataError& error) {
    return refuse(error);
  } catch (const c10::Error& error) {
    session.abort(error.what_without_backtrace());
  } catch (const std::exception& error) {
    session.abort(error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int exit_code = run(argc, argv);
  // LibTorch would take its thousands of operators apart, for as long as all its loading takes.
  std::fflush(nullptr);
  std::_Exit(exit_code);
}
