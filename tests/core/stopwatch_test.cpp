#include "fedhpc/core/stopwatch.hpp"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

namespace fedhpc {
namespace {

void wait() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

TEST(Stopwatch, TheOuterOfTwoActivitiesCounts) {
  Stopwatch watch;
  {
    const Timed outer(watch);
    wait();
    { const Timed inner(watch); }
    wait();
  }
  EXPECT_GE(watch.lap(), 0.04);
  EXPECT_EQ(watch.seconds(), 0);
}

}  // namespace
}  // namespace fedhpc
