#include "fedhpc/core/stop_signals.hpp"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include <gtest/gtest.h>

namespace fedhpc {
namespace {

TEST(StopSignals, RemembersTheFirst) {
  for (const int number : {SIGUSR1, SIGTERM, SIGINT, SIGHUP}) {
    const StopSignals signals;
    EXPECT_EQ(caught_signal(), 0);
    std::raise(number);
    EXPECT_EQ(caught_signal(), number);
  }
}

TEST(StopSignalsDeathTest, TheSecondEndsAtOnce) {
  EXPECT_EXIT(
      {
        const StopSignals signals;
        std::raise(SIGUSR1);
        std::raise(SIGTERM);
      },
      ::testing::ExitedWithCode(1), "");
}

TEST(StopSignals, TheSameSigtermTwiceIsOne) {
  const StopSignals signals;
  std::raise(SIGTERM);
  std::raise(SIGTERM);
  EXPECT_EQ(caught_signal(), SIGTERM);
}

TEST(StopSignalsDeathTest, ASigtermAWhileAfterTheFirstEndsAtOnce) {
  EXPECT_EXIT(
      {
        const StopSignals signals;
        std::raise(SIGTERM);
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        std::raise(SIGTERM);
      },
      ::testing::ExitedWithCode(1), "");
}

TEST(StopSignalsDeathTest, AfterwardsSignalsActAsUsual) {
  EXPECT_EXIT(
      {
        { const StopSignals signals; }
        std::raise(SIGTERM);
      },
      ::testing::KilledBySignal(SIGTERM), "");
}

TEST(StopSignalsDeathTest, OnceAllIsWrittenTheyChangeNothing) {
  EXPECT_EXIT(
      {
        {
          const StopSignals signals;
          ignore_stop_signals();
          std::raise(SIGTERM);
        }
        std::raise(SIGTERM);
        std::raise(SIGINT);
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace fedhpc
