#include <cstdio>

#include "fedhpc/app/commands.hpp"
#include "fedhpc/comm/session.hpp"
#include "fedhpc/core/error.hpp"
#include "fedhpc/core/options.hpp"

namespace {

constexpr int kRefused = 2;  // found before the first round: nothing was written

/// The same on every rank: rank 0 speaks for all.
int refuse(const fedhpc::Session& session, const char* message) {
  if (session.rank() == 0) std::fprintf(stderr, "fedhpc: error: %s\n", message);
  return kRefused;
}

}  // namespace

int main(int argc, char** argv) {
  const fedhpc::Session session(&argc, &argv);
  const fedhpc::Arguments arguments(argv + 1, argv + argc);
  try {
    return fedhpc::dispatch(arguments, fedhpc::join({argv, argv + argc}, " "));
  } catch (const fedhpc::ConfigError& error) {
    return refuse(session, error.what());
  } catch (const fedhpc::DataError& error) {
    return refuse(session, error.what());
  } catch (const std::exception& error) {
    session.abort(error.what());
  }
}
