#include <cstdio>
#include <cstdlib>

#include "fedhpc/app/commands.hpp"

namespace {

int exit_code = 0;

}  // namespace

int main(int argc, char** argv) {
  // Behind what was registered after this, as MPICH's farewell to its launcher, and before what came
  // earlier: LibTorch would take its thousands of operators apart, for as long as its loading takes.
  std::atexit([] {
    std::fflush(nullptr);
    std::_Exit(exit_code);
  });
  exit_code = fedhpc::program(argc, argv);
  std::exit(exit_code);
}
