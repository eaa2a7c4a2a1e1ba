#include "fixtures/device.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "fedhpc/math/network_lasso.hpp"
#include "fedhpc/math/order_free_sum.hpp"
#include "fedhpc/math/products.hpp"

#include "fixtures/device_passes.hpp"
#include "fixtures/standin.hpp"

// The network lasso, sums over ranks and products on a device equal those on the host.
namespace fedhpc::testing {
namespace {

constexpr VectorNorm kNorms[] = {VectorNorm::One, VectorNorm::Two, VectorNorm::Infinity};

/// A ring with chords, of weights that differ.
SimilarityGraph ring(std::int64_t nodes, std::int64_t chord) {
  SimilarityGraph graph{.nodes = nodes};
  for (std::int64_t i = 0; i + 1 < nodes; ++i) graph.edges.emplace_back(i, i + 1);
  graph.edges.emplace_back(0, nodes - 1);
  for (std::int64_t i = 0; i + chord < nodes; i += 3) graph.edges.emplace_back(i, i + chord);
  std::sort(graph.edges.begin(), graph.edges.end());
  for (std::size_t m = 0; m < graph.edges.size(); ++m) {
    graph.weights.push_back(0.5 + 0.25 * static_cast<double>(m % 4));
  }
  return graph;
}

class NetworkLassoOnADevice : public DeviceRanksTest {
 protected:
  static constexpr std::int64_t kStripes = 5;
  static constexpr std::int64_t kColumns = NetworkLasso::kStripe * (kStripes - 1) + 13;

  void SetUp() override {
    DeviceRanksTest::SetUp();
    if (!IsSkipped()) device_ = current_cuda_device();
  }

  /// This rank's columns: whole stripes, the last ones of which may be nobody's.
  Tensor own(const Tensor& all) const {
    const auto first = [&](int rank) {
      return std::min(kColumns, kStripes * rank / host_->size() * NetworkLasso::kStripe);
    };
    return all.slice(1, first(host_->rank()),
                     host_->rank() + 1 == host_->size() ? kColumns : first(host_->rank() + 1));
  }

  at::Device device_ = at::kCPU;
};

TEST_F(NetworkLassoOnADevice, EqualsTheHost) {
  const SimilarityGraph graph = ring(17, 5);
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const double bound = type == at::kDouble ? 1e-12 : 2e-5;
    for (const VectorNorm norm : kNorms) {
      for (const double tolerance : {0.0, 1e-3}) {
        at::manual_seed(8);
        const Tensor start = own(at::randn({17, kColumns}, at::kDouble).to(type)).contiguous();
        const Tensor target = start + own(at::randn({17, kColumns}, at::kDouble).to(type));
        const double lambda = norm == VectorNorm::One ? 0.1 : norm == VectorNorm::Two ? 1.0 : 8.0;
        NetworkLasso lasso(graph,
                           {.norm = norm, .lambda = lambda, .steps = 200, .tolerance = tolerance});
        const Tensor expected = start.clone();
        const NetworkLassoReport of_host = lasso.solve_(*host_, expected, target, 0.6);
        const Tensor z = start.to(device_);
        const NetworkLassoReport seen = lasso.solve_(*device_ranks_, z, target.to(device_), 0.6);
        SCOPED_TRACE(concat("norm ", static_cast<int>(norm), ", tolerance ", tolerance));
        if (expected.numel() > 0) {
          EXPECT_LT((z.cpu() - expected).abs().max().item<double>(), bound);
          EXPECT_GT((expected - target).abs().max().item<double>(), 0.01);
        }
        EXPECT_EQ(seen.steps, of_host.steps);
        if (tolerance == 0) continue;
        EXPECT_LE(seen.primal, tolerance);
        EXPECT_NEAR(seen.primal, of_host.primal, 1e-2 * tolerance);
        EXPECT_NEAR(seen.dual, of_host.dual, 1e-2 * tolerance);
      }
    }
  }
}

TEST_F(NetworkLassoOnADevice, HasTheSameBitsOnAnyNumberOfRanks) {
  for (const VectorNorm norm : kNorms) {
    at::manual_seed(9);
    const Tensor start = at::randn({9, kColumns}, at::kFloat);
    const Tensor target = at::randn({9, kColumns}, at::kFloat);
    NetworkLasso lasso(ring(9, 4), {.norm = norm, .lambda = 2, .steps = 12});
    const Tensor all = start.to(device_);
    lasso.solve_(*alone_, all, target.to(device_), 0.6);
    const Tensor z = own(start).to(device_);
    lasso.solve_(*device_ranks_, z, own(target).to(device_), 0.6);
    EXPECT_TRUE(z.cpu().equal(own(all.cpu())));
  }
}

TEST_F(NetworkLassoOnADevice, WaitsForNoStepOfOne) {
  if (waits_for_device() < 0) GTEST_SKIP() << "waits are not counted";
  const Tensor v = at::randn({9, 100}, at::kDouble);
  const auto waits = [&](VectorNorm norm, std::int64_t steps) {
    NetworkLasso lasso(ring(9, 4), {.norm = norm, .lambda = 0.3, .steps = steps});
    const Tensor z = v.to(device_);
    const Tensor target = v.to(device_);
    const std::int64_t before = waits_for_device();
    lasso.solve_(*device_ranks_, z, target, 0.6);
    return waits_for_device() - before;
  };
  EXPECT_EQ(waits(VectorNorm::One, 40), waits(VectorNorm::One, 2));
  EXPECT_GT(waits(VectorNorm::Two, 40), waits(VectorNorm::Two, 2));
}

TEST_F(NetworkLassoOnADevice, GraphsOfManyNodesAreSolvedOnTheHost) {
  constexpr std::int64_t kNodes = 1500;
  at::manual_seed(2);
  const Tensor start = own(at::randn({kNodes, kColumns}, at::kDouble)).contiguous();
  const Tensor target = own(at::randn({kNodes, kColumns}, at::kDouble)).contiguous();
  NetworkLasso lasso(ring(kNodes, 7), {.norm = VectorNorm::Two, .lambda = 0.3, .steps = 3});
  const Tensor expected = start.clone();
  const NetworkLassoReport of_host = lasso.solve_(*host_, expected, target, 0.6);
  const Tensor z = start.to(device_);
  const NetworkLassoReport seen = lasso.solve_(*host_, z, target.to(device_), 0.6);
  EXPECT_TRUE(z.cpu().equal(expected));
  EXPECT_EQ(seen.primal, of_host.primal);
}

TEST_F(NetworkLassoOnADevice, SumsHaveTheBitsOfTheHost) {
  at::manual_seed(8 + host_->rank());
  const Tensor parts =
      at::randn({30, 7}, at::kDouble).square() * at::pow(10, at::randn({30, 7}, at::kDouble) * 6);
  const auto sums = [&](const Tensor& of) {
    return order_free_sum(*device_ranks_, of.to(device_));
  };
  const Tensor none = at::zeros({host_->rank() == 0 ? 0 : 2, 3}, at::kDouble);
  for (const Tensor& of : {parts, none}) {
    EXPECT_TRUE(sums(of).equal(order_free_sum(*host_, of)));
  }
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    const Tensor with_bad = parts.clone();
    if (host_->rank() == 0) with_bad[4][2].fill_(bad);
    EXPECT_TRUE(sums(with_bad).isnan().all().item<bool>());
  }
}

using DeviceProducts = DeviceTest;

TEST_F(DeviceProducts, EqualThoseOfTheHost) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    for (const Precision precision : {Precision::Fp32, Precision::Tf32, Precision::Bf16}) {
      for (const Transpose ta : {Transpose::No, Transpose::Yes}) {
        for (const Transpose tb : {Transpose::No, Transpose::Yes}) {
          const bool flip_a = ta == Transpose::Yes;
          const bool flip_b = tb == Transpose::Yes;
          // Of wider rows, so that rows and stacks have gaps.
          const Tensor a = at::randn({3, 30, 30}, type).narrow(1, 0, flip_a ? 20 : 9);
          const Tensor b = at::randn({3, 30, 30}, type).narrow(1, 0, flip_b ? 7 : 20);
          const Tensor left = a.narrow(2, 0, flip_a ? 9 : 20);
          const Tensor right = b.narrow(2, 0, flip_b ? 20 : 7);
          const Tensor result = at::randn({3, 9, 11}, type);
          const Tensor moved = result.clone().to(at::kCUDA);
          const Tensor far_left = a.contiguous().to(at::kCUDA).narrow(2, 0, left.size(2));
          const Tensor far_right = b.contiguous().to(at::kCUDA).narrow(2, 0, right.size(2));
          batched_product(type, 3, -0.5, matrices_of(left), ta, matrices_of(right), tb, 0.25,
                          matrices_of(result.narrow(2, 2, 7)), {precision});
          batched_product(type, 3, -0.5, matrices_of(far_left), ta, matrices_of(far_right), tb,
                          0.25, matrices_of(moved.narrow(2, 2, 7)), {precision});
          const double coarse = precision == Precision::Fp32 || !is_real_device() ? 1e-6 : 1e-2;
          expect_near(moved.cpu(), result, type == at::kDouble ? 1e-14 : coarse, "product");
        }
      }
    }
  }
}

}  // namespace
}  // namespace fedhpc::testing
