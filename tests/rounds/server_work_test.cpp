#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "fedhpc/comm/session.hpp"
#include "fedhpc/rounds/coupling.hpp"

namespace fedhpc {
namespace {

/// Result of piece i: its shape has i mod 4 dimensions, some with nothing inside.
Tensor piece(std::int64_t i, at::ScalarType type) {
  const std::vector<std::int64_t> shapes[] = {{}, {i - 1}, {2, i}, {1, 3, i}};
  const std::vector<std::int64_t>& shape = shapes[i % 4];
  std::int64_t size = 1;
  for (const std::int64_t length : shape) size *= length;
  return at::arange(size, type).add(100 * i).reshape(shape);
}

TEST(OnServer, DoesEveryPieceOnceAndGivesAllToEveryRank) {
  const auto world = world_communicator(60);
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kLong}) {
    for (const std::int64_t n : {1, 3, 14}) {
      Tensor times = at::zeros({n}, at::kLong);
      const std::vector<Tensor> results = on_server(*world, n, [&](std::int64_t i) {
        times[i].add_(1);
        return piece(i, type);
      });
      // No rank has more than one piece more than another.
      const auto own = times.sum().item<std::int64_t>();
      EXPECT_LE(own, (n + world->size() - 1) / world->size());
      world->sum_(times);
      EXPECT_TRUE(times.equal(at::zeros({n}, at::kLong).add(1)));
      ASSERT_EQ(std::ssize(results), n);
      for (std::int64_t i = 0; i < n; ++i) {
        EXPECT_TRUE(results[static_cast<std::size_t>(i)].equal(piece(i, type))) << i;
      }
    }
  }
}

TEST(OnServer, DoesNothingForNoWork) {
  const auto world = world_communicator(60);
  EXPECT_TRUE(on_server(*world, 0, [](std::int64_t) { return Tensor(); }).empty());
}

TEST(OnServer, RefusesMixedTypes) {
  const auto world = world_communicator(60);
  EXPECT_THROW(
      on_server(*world, 5,
                [](std::int64_t i) { return at::zeros({2}, i == 3 ? at::kFloat : at::kDouble); }),
      Error);
}

}  // namespace
}  // namespace fedhpc
