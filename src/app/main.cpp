#include <cstdio>
#include <cstdlib>

#include "fedhpc/app/commands.hpp"

int main(int argc, char** argv) {
  const int exit_code = fedhpc::program(argc, argv);
  // LibTorch would take its thousands of operators apart, for as long as all its loading takes.
  std::fflush(nullptr);
  std::_Exit(exit_code);
}
