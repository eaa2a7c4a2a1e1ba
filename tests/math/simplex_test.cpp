#include "fedhpc/math/simplex.hpp"

#include <limits>
#include <vector>

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "fedhpc/core/rng.hpp"

namespace fedhpc {
namespace {

Tensor row_of(const std::vector<double>& numbers) {
  const Tensor row = at::empty({1, std::ssize(numbers)}, at::kDouble);
  std::copy(numbers.begin(), numbers.end(), row.data_ptr<double>());
  return row;
}

/// w is the projection of x if and only if <x - w, v - w> <= 0 for every vertex v.
void expect_projection(const Tensor& x, const Tensor& w, double scale) {
  EXPECT_GE(w.min().item<double>(), 0);
  EXPECT_NEAR(w.sum().item<double>(), 1, 1e-12 * scale);
  const Tensor away = x.sub(w);
  const double at_w = away.mul(w).sum().item<double>();
  EXPECT_LE(away.max().item<double>() - at_w, 1e-12 * scale * scale);
}

TEST(Simplex, RandomPointsGoToTheirNearest) {
  Draws draws({.seed = 7, .purpose = Purpose::Generator});
  for (const std::int64_t n : {1, 2, 3, 10, 101}) {
    for (const double scale : {0.01, 0.3, 1.0, 100.0}) {
      const Tensor points = at::empty({20, n}, at::kDouble);
      for (std::int64_t i = 0; i < points.numel(); ++i) {
        points.data_ptr<double>()[i] = scale * draws.normal() + 1.0 / static_cast<double>(n);
      }
      const Tensor nearest = project_to_simplex(points);
      for (std::int64_t r = 0; r < 20; ++r) {
        expect_projection(points[r], nearest[r], std::max(1.0, scale));
      }
    }
  }
}

TEST(Simplex, PointsOfItStay) {
  const Tensor point = row_of({0.5, 0, 0.25, 0.25});
  EXPECT_TRUE(project_to_simplex(point).equal(point));
}

TEST(Simplex, AFarNumberTakesAllToTheLastBit) {
  for (const double far : {3.0, 1e9, 1e300}) {
    EXPECT_TRUE(project_to_simplex(row_of({0.3, far, -1, 0.9})).equal(row_of({0, 1, 0, 0})));
  }
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(project_to_simplex(row_of({-infinity, 0.3, -infinity})).equal(row_of({0, 1, 0})));
  EXPECT_TRUE(project_to_simplex(row_of({2, -infinity, 2})).equal(row_of({0.5, 0, 0.5})));
}

TEST(Simplex, NoPointsAndNoNumbersAreFine) {
  EXPECT_EQ(project_to_simplex(at::empty({0, 3}, at::kDouble)).numel(), 0);
  EXPECT_EQ(project_to_simplex(at::empty({0, 0}, at::kDouble)).numel(), 0);
}

}  // namespace
}  // namespace fedhpc
