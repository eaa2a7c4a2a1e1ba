// The main of every test binary: GoogleTest over MPI. Started without a launcher it is one rank.

#include <chrono>
#include <cstdio>
#include <stdexcept>

#include <gtest/gtest.h>
#include <mpi.h>

#include "support/mpi_listener.hpp"
#include "support/turns.hpp"
#include "support/watchdog.hpp"

namespace fedhpc::testing {
namespace {

constexpr int kBadEnvironment = 2;

// Without this each rank would draw its own seed from its clock and shuffle differently.
void share_shuffle_seed() {
  int seed = GTEST_FLAG_GET(random_seed);
  if (seed == 0) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    seed = static_cast<int>(now / std::chrono::milliseconds(1) % 99'999) + 1;
  }
  MPI_Bcast(&seed, 1, MPI_INT, 0, MPI_COMM_WORLD);
  GTEST_FLAG_SET(random_seed, seed);
}

// Printer and report file belong to rank 0: the others would print over it and write the same file.
void silence() {
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  delete listeners.Release(listeners.default_xml_generator());
}

int run_tests(Watchdog& watchdog) {
  if (watchdog.rank() != 0) {
    silence();
  }
  if (GTEST_FLAG_GET(list_tests)) {
    return watchdog.rank() == 0 ? RUN_ALL_TESTS() : 0;
  }
  share_shuffle_seed();
  // Appended behind the printer: GoogleTest calls the On...End functions in reverse, so what this
  // listener raises is printed before the printer closes the test.
  auto* listener = new MpiListener(watchdog);
  ::testing::UnitTest::GetInstance()->listeners().Append(listener);  // owns it
  const int run_all_tests = RUN_ALL_TESTS();
  return listener->agree_exit_code(run_all_tests);
}

// Takes turns, and gives the limit that rank 0 found in the environment; 0 after a message where
// either cannot be read.
Watchdog::Seconds read_environment(int rank) {
  try {
    int ranks = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    take_turns(ranks);
    return watchdog_limit(MPI_COMM_WORLD);
  } catch (const std::invalid_argument& error) {
    if (rank == 0) {
      std::fprintf(stderr, "[harness] %s\n", error.what());
    }
    return Watchdog::Seconds(0);
  }
}

int run(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const Watchdog::Seconds limit = read_environment(rank);
  if (limit.count() == 0) {
    return kBadEnvironment;
  }
  Watchdog watchdog(MPI_COMM_WORLD, limit);
  return run_tests(watchdog);
}

}  // namespace
}  // namespace fedhpc::testing

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  const int exit_code = fedhpc::testing::run(argc, argv);
  MPI_Finalize();
  return exit_code;
}
