// Steps of the network lasso against the same by LibTorch.

#include <utility>
#include <vector>

#include "gpu/kernel_case.hpp"

namespace fedhpc::test {

namespace {

class NetworkKernels : public KernelTest {
 protected:
  static constexpr std::int64_t kNodes = 5;
  static constexpr std::int64_t kStripes = 3;
  static constexpr std::int64_t kColumns = kStripes * DeviceNetwork::kStripe;
  static constexpr std::int64_t kEdges = 4;
  // Node 3 is alone.
  static constexpr std::pair<std::int32_t, std::int32_t> kEnds[kEdges] = {
      {0, 1}, {0, 4}, {1, 2}, {2, 4}};

  void SetUp() override {
    KernelTest::SetUp();
    if (IsSkipped()) return;
    at::manual_seed(3);
    z_ = random({kNodes, kColumns});
    v_ = random({kNodes, kColumns});
    a_ = random({kEdges, kColumns});
    numbers_ = at::tensor({0.2, 0.7, 0.0, 1.5}, at::kDouble).to(type());
    q_ = at::zeros({kNodes, kEdges}, at::kDouble);
    std::vector<std::int32_t> ends;
    std::vector<std::int32_t> joined;
    std::vector<std::int32_t> starts{0};
    for (std::int32_t node = 0; node < kNodes; ++node) {
      for (std::int32_t m = 0; m < kEdges; ++m) {
        const auto [i, j] = kEnds[m];
        if (node == 0) ends.insert(ends.end(), {i, j});
        if (node != i && node != j) continue;
        q_[node][m].fill_(node == i ? 1 : -1);
        joined.insert(joined.end(), {node == i ? m : -1 - m, node == i ? j : i});
      }
      starts.push_back(static_cast<std::int32_t>(joined.size()) / 2);
    }
    const auto integers = [&](const std::vector<std::int32_t>& values) {
      return placed(at::tensor(std::vector<std::int64_t>(values.begin(), values.end()), at::kLong)
                        .to(at::kInt));
    };
    there_ = {placed(z_), placed(v_), placed(a_), placed(numbers_)};
    graph_ = {integers(ends), integers(joined), integers(starts)};
  }

  DeviceNetwork network(VectorNorm norm) const {
    const auto ints = [](const Tensor& of) { return static_cast<std::int32_t*>(of.data_ptr()); };
    return {.type = real(),
            .norm = norm,
            .nodes = kNodes,
            .edges = kEdges,
            .stripes = kStripes,
            .ends = ints(graph_[0]),
            .joined = ints(graph_[1]),
            .starts = ints(graph_[2]),
            .numbers = there_[3].data_ptr(),
            .z = there_[0].data_ptr(),
            .v = there_[1].data_ptr(),
            .a = there_[2].data_ptr()};
  }

  static Tensor wide(const Tensor& x) { return x.to(at::kDouble); }
  /// W of A, in float64.
  Tensor shrunk(VectorNorm norm) const {
    const Tensor a = wide(a_);
    const Tensor of_edges = wide(numbers_).unsqueeze(1);
    if (norm == VectorNorm::Two) return a * of_edges;
    const Tensor clipped = a.sign() * at::minimum(a.abs(), of_edges);
    return norm == VectorNorm::One ? a - clipped : clipped;
  }
  /// Sums over the columns of each stripe, [stripes, ...].
  static Tensor by_stripes(const Tensor& x) {
    return x.reshape({x.size(0), kStripes, DeviceNetwork::kStripe}).sum(2).t();
  }

  static constexpr VectorNorm kNorms[] = {VectorNorm::One, VectorNorm::Two, VectorNorm::Infinity};

  Tensor z_, v_, a_, numbers_;
  Tensor q_;                   // [N, E]
  std::vector<Tensor> there_;  // the same where kernels are
  std::vector<Tensor> graph_;
};

TEST_P(NetworkKernels, ResidualsOfTheLinearSystem) {
  constexpr double kEtaRho = 0.3;
  for (const VectorNorm norm : kNorms) {
    const Tensor residuals = placed(at::full({kNodes, kColumns}, kNan, type()));
    kernels().network_residuals(
        {.of = network(norm), .eta_rho = kEtaRho, .residuals = residuals.data_ptr()});
    const Tensor z = wide(z_);
    const Tensor pulls = 2 * shrunk(norm) - wide(a_) - q_.t().matmul(z);
    expect_close(residuals.cpu(), wide(v_) - z + kEtaRho * q_.matmul(pulls), 4);
  }
}

TEST_P(NetworkKernels, DifferencesAndTheirSums) {
  const std::vector<double> levels{0.0, 0.4, 1.1, 9.0};
  const Tensor at_levels = doubles(levels);
  for (const VectorNorm norm : kNorms) {
    const std::int64_t terms = norm == VectorNorm::Infinity ? 2 : 1;
    const Tensor before = a_.clone();
    const Tensor after = q_.t().matmul(wide(z_)) + wide(a_) - shrunk(norm);
    for (const bool stays : {true, false}) {
      const Tensor sums = placed(at::full({kStripes, kEdges, terms}, kNan, at::kDouble));
      there_[2].copy_(before);
      kernels().network_differences(
          {.of = network(norm),
           .stays = stays,
           .levels = static_cast<double*>(at_levels.data_ptr()),
           .sums = norm == VectorNorm::One ? nullptr : static_cast<double*>(sums.data_ptr())});
      const Tensor now = there_[2].cpu();
      if (stays) {
        EXPECT_TRUE(now.equal(before));
      } else {
        expect_close(now, after, 4);
      }
      const Tensor beyond = wide(now).abs() - at::tensor(levels, at::kDouble).unsqueeze(1);
      if (norm == VectorNorm::Two) {
        expect_close(sums.cpu().squeeze(2), by_stripes(wide(now).square()), 32);
      } else if (norm == VectorNorm::Infinity) {
        expect_close(sums.cpu().select(2, 0), by_stripes(beyond.clamp_min(0)), 32);
        EXPECT_TRUE(
            sums.cpu().select(2, 1).equal(by_stripes(beyond.gt(0).to(at::kDouble)).contiguous()));
      }
    }
    there_[2].copy_(before);
  }
}

TEST_P(NetworkKernels, WhatIsNotANumberStaysAndMakesItsSumNone) {
  for (const VectorNorm norm : {VectorNorm::Two, VectorNorm::Infinity}) {
    const std::int64_t terms = norm == VectorNorm::Infinity ? 2 : 1;
    const Tensor with_nan = a_.clone();
    with_nan[1][70].fill_(kNan);
    there_[2].copy_(with_nan);
    const Tensor levels = doubles({0, 0, 0, 0});
    const Tensor sums = placed(at::zeros({kStripes, kEdges, terms}, at::kDouble));
    kernels().network_differences({.of = network(norm),
                                   .levels = static_cast<double*>(levels.data_ptr()),
                                   .sums = static_cast<double*>(sums.data_ptr())});
    const Tensor nans = sums.cpu().select(2, 0).isnan();
    EXPECT_TRUE(nans[1][1].item<bool>());
    EXPECT_EQ(nans.sum().item<std::int64_t>(), 1);
    const Tensor entries = there_[2].cpu().isnan();
    EXPECT_TRUE(entries[1][70].item<bool>());
    EXPECT_EQ(entries.sum().item<std::int64_t>(), 1);
  }
}

TEST_P(NetworkKernels, SquaresOfTheResiduals) {
  constexpr double kEta = 0.7;
  constexpr double kRho = 1.9;
  for (const VectorNorm norm : kNorms) {
    const Tensor sums = placed(at::full({kStripes, 6}, kNan, at::kDouble));
    kernels().network_squares({.of = network(norm),
                               .eta = kEta,
                               .rho = kRho,
                               .sums = static_cast<double*>(sums.data_ptr())});
    const Tensor w = shrunk(norm);
    const Tensor zq = q_.t().matmul(wide(z_));
    const Tensor pull = (wide(z_) - wide(v_)) / kEta;
    const Tensor omega_q = kRho * q_.matmul(w - wide(a_));
    const auto squares = [](const Tensor& of) { return by_stripes(of.square()).sum(1); };
    expect_close(sums.cpu(),
                 at::stack({squares(w - zq), squares(w), squares(zq), squares(pull - omega_q),
                            squares(pull), squares(omega_q)},
                           1),
                 256);
  }
}

FEDHPC_KERNEL_TESTS(NetworkKernels);

}  // namespace

}  // namespace fedhpc::test
