#include "fedhpc/training/loss.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

namespace fedhpc {
namespace {

TEST(SoftmaxCrossEntropy, EqualsAutograd) {
  const Tensor logits = at::randn({2, 7, 5}, at::kDouble).mul(3);
  const Tensor labels = at::randint(5, {2, 7}, at::kLong);
  const Tensor gradient = at::empty_like(logits);
  std::vector<double> loss{10, 20};  // sums are added
  softmax_cross_entropy(logits, labels, gradient, loss.data());
  for (std::int64_t c = 0; c < 2; ++c) {
    const Tensor leaf = logits[c].clone().requires_grad_(true);
    const Tensor mean = at::cross_entropy_loss(leaf, labels[c]);
    mean.backward();
    EXPECT_NEAR(loss[static_cast<std::size_t>(c)] - 10 * static_cast<double>(c + 1),
                7 * mean.item<double>(), 1e-11);
    EXPECT_LT(gradient[c].sub(leaf.grad()).abs().max().item<double>(), 1e-14);
  }
}

TEST(SoftmaxCrossEntropy, IsStableForLargeLogits) {
  const Tensor logits = at::tensor({1000.0F, -1000.0F, 0.0F}).view({1, 1, 3});
  const Tensor gradient = at::empty_like(logits);
  double loss = 0;
  softmax_cross_entropy(logits, at::tensor({std::int64_t{1}}).view({1, 1}), gradient, &loss);
  EXPECT_EQ(loss, 2000);
  EXPECT_TRUE(gradient.isfinite().all().item<bool>());
  EXPECT_EQ(gradient[0][0][1].item<float>(), -1);
}

TEST(SoftmaxCrossEntropy, KeepsItsDigitsBesideLargeLogits) {
  const Tensor logits = at::full({1, 2, 10}, 1e7F);
  const Tensor labels = at::tensor({std::int64_t{1}, std::int64_t{9}});
  double loss = 0;
  softmax_cross_entropy(logits, labels.view({1, 2}), Tensor(), &loss);
  EXPECT_NEAR(loss, 2 * std::log(10.0), 1e-6);
  std::vector<double> correct(2);
  std::vector<double> losses(2);
  score_samples(logits[0], labels.const_data_ptr<std::int64_t>(), correct.data(), losses.data());
  EXPECT_NEAR(losses[1], std::log(10.0), 1e-6);
}

TEST(SoftmaxCrossEntropy, ShowsNan) {
  const Tensor logits =
      at::tensor({0.0, std::numeric_limits<double>::quiet_NaN(), 1.0}).view({1, 1, 3});
  double loss = 0;
  softmax_cross_entropy(logits, at::tensor({std::int64_t{0}}).view({1, 1}), Tensor(), &loss);
  EXPECT_TRUE(std::isnan(loss));
}

TEST(ScoreSamples, LowestClassWinsATieAndNanIsWrong) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor logits = at::tensor({1.0, 1.0, 0.0,   // tie of 0 and 1
                                    1.0, 1.0, 0.0,   //
                                    0.0, 2.0, 1.0,   //
                                    nan, 1.0, 2.0})  // label's own logit is NaN
                            .view({4, 3});
  const std::vector<std::int64_t> labels{0, 1, 1, 0};
  std::vector<double> correct(4);
  std::vector<double> loss(4);
  score_samples(logits, labels.data(), correct.data(), loss.data());
  EXPECT_EQ(correct, (std::vector<double>{1, 0, 1, 0}));
  EXPECT_NEAR(loss[2], std::log(std::exp(-2.0) + 1 + std::exp(-1.0)), 1e-12);
  EXPECT_TRUE(std::isnan(loss[3]));
}

}  // namespace
}  // namespace fedhpc
