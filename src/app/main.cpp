#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include <ATen/core/Tensor.h>

#include "fedhpc/app/commands.hpp"
#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/core/options.hpp"

namespace {

constexpr int kRefused = 2;  // found before the first round: nothing was written

/// The same on every rank: rank 0 speaks for all, in one line even where a value quoted holds
/// several.
int refuse(const fedhpc::Session& session, std::string message) {
  if (session.rank() != 0) return kRefused;
  for (char& letter : message) {
    if (std::iscntrl(static_cast<unsigned char>(letter)) != 0) letter = ' ';
  }
  std::fprintf(stderr, "fedhpc: error: %s\n", message.c_str());
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
    return refuse(session, error.what());
  } catch (const fedhpc::DataError& error) {
    return refuse(session, error.what());
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
