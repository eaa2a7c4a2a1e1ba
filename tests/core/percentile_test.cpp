#include "fedhpc/core/percentile.hpp"

#include <cmath>

#include <gtest/gtest.h>

namespace fedhpc {
namespace {

TEST(Percentile, InterpolatesLinearly) {
  const std::vector<double> values{4, 1, 3, 2};
  EXPECT_DOUBLE_EQ(percentile(values, 0), 1);
  EXPECT_DOUBLE_EQ(percentile(values, 0.1), 1.3);
  EXPECT_DOUBLE_EQ(percentile(values, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(percentile(values, 0.9), 3.7);
  EXPECT_DOUBLE_EQ(percentile(values, 1), 4);
  EXPECT_DOUBLE_EQ(percentile({5}, 0.1), 5);
  EXPECT_TRUE(std::isnan(percentile({}, 0.5)));
}

TEST(Percentile, IsNaNWhereAValueIs) {
  const double nan = std::nan("");
  for (const double fraction : {0.0, 0.5, 1.0}) {
    EXPECT_TRUE(std::isnan(percentile({1, 2, nan}, fraction)));
    EXPECT_TRUE(std::isnan(percentile({nan, 1, 2}, fraction)));
  }
}

}  // namespace
}  // namespace fedhpc
