#include <cmath>
#include <memory>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <gtest/gtest.h>

#include "fedhpc/core/rng.hpp"
#include "fedhpc/training/penalty.hpp"

// The two Moreau envelopes of sFedHP's objective, on a quadratic loss.
namespace fedhpc::testing {
namespace {

/// F(w) of (1) to (3) for one client with the loss 1/2 (theta - a)^T Q (theta - a), by its two
/// proximal problems.
class QuadraticClient {
 public:
  static constexpr std::int64_t kSize = 5;
  static constexpr double kLambda1 = 6;
  static constexpr double kLambda2 = 4;
  static constexpr double kGamma1 = 0.7;
  static constexpr double kGamma2 = 0.4;
  static constexpr double kRho = 0.3;

  QuadraticClient() {
    auto layout = std::make_shared<Layout>();
    layout->add("x", {kSize}, kSize, Tag::Trainable);
    layout_ = layout;
    const Tensor root = random({kSize, kSize}, 1);
    q_ = root.matmul(root.t());  // symmetric, positive
    a_ = random({1, kSize}, 2);
  }

  static Tensor random(const std::vector<std::int64_t>& shape, std::uint64_t number) {
    Draws draws({.seed = 3, .purpose = Purpose::Generator, .client = number});
    Tensor values = at::empty(shape, at::kDouble);
    double* data = values.data_ptr<double>();
    for (std::int64_t i = 0; i < values.numel(); ++i) data[i] = 2 * draws.uniform() - 1;
    return values;
  }

  /// A gradient step on L(theta) + lambda1/2 ||theta - phi||^2, (5); that on the penalty by the
  /// program's own kernel.
  Tensor after_step(const Tensor& theta, const Tensor& phi) const {
    const Rows next{theta.clone(), layout_};
    descend_(next, kRate,
             {.mu = kLambda1, .centre = {phi, layout_}, .gamma = kGamma1, .rho = kRho});
    return next.values.sub(theta.sub(a_).matmul(q_), kRate);
  }

  /// grad L(theta), L = loss + gamma1 phi_rho.
  Tensor slope_at(const Tensor& theta) const {
    return theta.sub(a_).matmul(q_).add(theta.div(kRho).tanh(), kGamma1);
  }

  /// theta = theta(phi) and phi = phi(theta, w), by steps towards both until they stay.
  template <typename Phi>
  std::pair<Tensor, Tensor> solve(const Tensor& w, const Phi& phi_at) const {
    Tensor theta = w;
    Tensor phi = w;
    for (int i = 0; i < 500; ++i) {
      theta = after_step(theta, phi);
      phi = phi_at(theta, w);
    }
    return {theta, phi};
  }

  /// (10).
  static Tensor phi_of_10(const Tensor& theta, const Tensor& w) {
    return theta.mul(kLambda1).add(w, kLambda2).div(kLambda1 + kLambda2);
  }
  /// argmin over phi of ||theta - phi||^2 + lambda2/2 ||phi - w||^2, as (6) is printed.
  static Tensor phi_of_printed_6(const Tensor& theta, const Tensor& w) {
    return theta.mul(2).add(w, kLambda2).div(2 + kLambda2);
  }

  /// F(w), the Moreau envelope of the Moreau envelope, and gamma2 phi_rho(w).
  double envelope(const Tensor& w) const {
    const auto [theta, phi] = solve(w, phi_of_10);
    const Tensor off = theta.sub(a_);
    return 0.5 * off.matmul(q_).mul(off).sum().item<double>() +
           kGamma1 * smoothed_l1({theta, layout_}, kRho).front() +
           kLambda1 / 2 * theta.sub(phi).square().sum().item<double>() +
           kLambda2 / 2 * phi.sub(w).square().sum().item<double>() +
           kGamma2 * smoothed_l1({w, layout_}, kRho).front();
  }

  Tensor envelope_gradient(const Tensor& w) const {
    constexpr double kStep = 2e-5;  // third derivatives are about gamma / rho^2
    Tensor gradient = at::empty_like(w);
    for (std::int64_t i = 0; i < kSize; ++i) {
      Tensor above = w.clone();
      Tensor below = w.clone();
      above[0][i] += kStep;
      below[0][i] -= kStep;
      gradient[0][i] = (envelope(above) - envelope(below)) / (2 * kStep);
    }
    return gradient;
  }

  const LayoutPtr& layout() const { return layout_; }

 private:
  static constexpr double kRate = 0.05;
  LayoutPtr layout_;
  Tensor q_;  // [n, n]
  Tensor a_;  // [1, n]
};

double largest(const Tensor& difference) { return difference.abs().max().item<double>(); }

TEST(SFedHP, MeetsTheFirstOrderConditionsOfBothEnvelopes) {
  const QuadraticClient client;
  using Q = QuadraticClient;
  for (const std::uint64_t number : {10U, 11U}) {
    const Tensor w = Q::random({1, Q::kSize}, number);
    const auto [theta, phi] = client.solve(w, Q::phi_of_10);
    const Tensor pull = phi.sub(theta).mul(Q::kLambda1);
    EXPECT_GT(largest(pull), 0.1);
    EXPECT_LT(largest(pull.sub(client.slope_at(theta))), 1e-8);
    EXPECT_LT(largest(w.sub(phi).mul(Q::kLambda2).sub(pull)), 1e-8);
    // The step of (11) is along lambda2 (w - phi) + gamma2 grad phi_rho(w).
    const Tensor direction = w.sub(phi).mul(Q::kLambda2).add(w.div(Q::kRho).tanh(), Q::kGamma2);
    const Tensor gradient = client.envelope_gradient(w);
    EXPECT_LT(largest(direction.sub(gradient)), 1e-8);

    // Not so without the 1/2 lambda1 that (6) has lost in print.
    const auto [printed_theta, printed_phi] = client.solve(w, Q::phi_of_printed_6);
    const Tensor printed_pull = printed_phi.sub(printed_theta).mul(Q::kLambda1);
    EXPECT_LT(largest(printed_pull.sub(client.slope_at(printed_theta))), 1e-8) << "(5) is kept";
    EXPECT_GT(largest(w.sub(printed_phi).mul(Q::kLambda2).sub(printed_pull)), 1e-2);
    EXPECT_GT(largest(w.sub(printed_phi)
                          .mul(Q::kLambda2)
                          .add(w.div(Q::kRho).tanh(), Q::kGamma2)
                          .sub(gradient)),
              1e-2);
  }
}

TEST(SFedHP, EquationTenIsTheMinimumOfTheTwoPulls) {
  const QuadraticClient client;
  using Q = QuadraticClient;
  const Tensor theta = Q::random({1, Q::kSize}, 20);
  const Tensor w = Q::random({1, Q::kSize}, 21);
  Tensor phi = w.clone();
  for (int i = 0; i < 500; ++i) {
    const Rows to_theta{phi.clone(), client.layout()};
    const Rows to_w{phi.clone(), client.layout()};
    descend_(to_theta, 0.05, {.mu = Q::kLambda1, .centre = {theta, client.layout()}});
    descend_(to_w, 0.05, {.mu = Q::kLambda2, .centre = {w, client.layout()}});
    phi = to_theta.values.add(to_w.values).sub(phi);
  }
  EXPECT_LT(largest(phi.sub(Q::phi_of_10(theta, w))), 1e-12);
  EXPECT_GT(largest(phi.sub(Q::phi_of_printed_6(theta, w))), 1e-2);
}

}  // namespace
}  // namespace fedhpc::testing
