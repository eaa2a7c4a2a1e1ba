#include "fedhpc/math/truncated_svd.hpp"

#include <cmath>
#include <limits>

#include <ATen/ops/eye.h>
#include <gtest/gtest.h>

namespace fedhpc {
namespace {

TEST(TruncatedSvd, OfADivergedModelIsNotANumber) {
  for (const double value :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const Tensor matrix = at::eye(4, at::kDouble);
    EXPECT_NEAR(effective_rank(matrix), 4, 1e-12);
    matrix[1][2].fill_(value);
    EXPECT_TRUE(std::isnan(effective_rank(matrix)));
    const BalancedProduct product = truncated_svd(matrix, 2);
    EXPECT_EQ(product.left.size(1), 2);
    EXPECT_TRUE(product.left.isnan().all().item<bool>());
    EXPECT_TRUE(product.right.isnan().all().item<bool>());
  }
}

}  // namespace
}  // namespace fedhpc
