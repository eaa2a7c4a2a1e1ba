#include "fedhpc/engine/divergence.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace fedhpc {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Divergence, IsALossBeyondTenThousandTimesThatOfGuessing) {
  for (const double loss : {23026.0, 2e30, kInfinity, kNan}) {
    Divergence divergence(std::log(10));
    divergence.look_at(1, std::vector{23025.0, 0.0}, true);
    EXPECT_EQ(divergence.since(), 0);
    divergence.look_at(2, std::vector{2.3, loss}, true);
    divergence.look_at(3, std::vector{loss}, false);
    EXPECT_EQ(divergence.since(), 2) << loss;
  }
}

TEST(Divergence, IsALossThatIsInfiniteWhereThatOfGuessingIsToo) {
  Divergence divergence(kInfinity);
  divergence.look_at(1, std::vector{1e300}, true);
  EXPECT_EQ(divergence.since(), 0);
  divergence.look_at(2, std::vector{kInfinity}, true);
  EXPECT_EQ(divergence.since(), 2);
}

TEST(Divergence, EndsWithASoundEvaluation) {
  Divergence divergence(std::log(2));
  divergence.look_at(4, std::vector{kNan}, false);
  divergence.look_at(5, std::vector{0.5}, false);
  EXPECT_EQ(divergence.since(), 4) << "of models nothing is known";
  divergence.look_at(6, std::vector{0.5, 0.7}, true);
  EXPECT_EQ(divergence.since(), 0);
}

TEST(Divergence, IsNotARoundInWhichNobodyTrains) {
  Divergence divergence(1);
  divergence.look_at(1, {}, false);
  EXPECT_EQ(divergence.since(), 0);
}

}  // namespace
}  // namespace fedhpc
