#include "fedhpc/training/row_optimizer.hpp"

#include <map>
#include <memory>
#include <string>

#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "reference/optimizer.hpp"

namespace fedhpc {
namespace {

const std::map<std::string, OptimizerKind>& kinds() {
  static const std::map<std::string, OptimizerKind> names = {{"sgd", OptimizerKind::Sgd},
                                                             {"momentum", OptimizerKind::Momentum},
                                                             {"nesterov", OptimizerKind::Nesterov},
                                                             {"adam", OptimizerKind::Adam}};
  return names;
}

/// Columns 0-4 and 8-18 are trainable, 5-7 a buffer.
LayoutPtr layout_with_buffer() {
  auto layout = std::make_shared<Layout>();
  layout->add("a", {5}, 1, Tag::Trainable);
  layout->add("b", {3}, 1, Tag::Buffer);
  layout->add("c", {10}, 1, Tag::Trainable);
  layout->add("d", {1}, 1, Tag::Trainable);
  return layout;
}

StepRule rule_of(const std::string& name) {
  return {.kind = kinds().at(name), .lr = 0.1, .momentum = 0.7, .weight_decay = 0.05};
}

/// What a PyTorch optimizer of its own makes of one row's trainable columns.
Tensor reference_row(const std::string& name, const Tensor& start, const Tensor& gradients,
                     std::int64_t steps) {
  reference::Optimizer optimizer({.name = name, .lr = 0.1, .momentum = 0.7, .weight_decay = 0.05});
  const auto cut = [](const Tensor& row) {
    return std::vector<Tensor>{row.narrow(0, 0, 5), row.narrow(0, 8, 11)};
  };
  const Tensor result = start.to(at::kDouble).clone();
  std::vector<Tensor> w = cut(result);
  for (std::int64_t s = 0; s < steps; ++s) {
    optimizer.step_(w, cut(gradients.select(0, s).to(at::kDouble)));
  }
  result.narrow(0, 0, 5).copy_(w[0]);
  result.narrow(0, 8, 11).copy_(w[1]);
  return result;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  return a.to(at::kDouble).sub(b.to(at::kDouble)).abs().max().item<double>();
}

class EveryRule : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryRule, RowsMoveAsTheirOwnPyTorchOptimizersWould) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const double bound = type == at::kDouble ? 1e-13 : 1e-5;
    const Tensor start = at::randn({3, 19}, type);
    const Tensor gradients = at::randn({4, 3, 19}, type);  // [steps, C, P]
    const Tensor rows = start.clone();
    RowOptimizer optimizer(rule_of(GetParam()), layout_with_buffer());
    optimizer.reset(rows);
    for (std::int64_t s = 0; s < 4; ++s) optimizer.step_(rows, gradients.select(0, s));
    for (std::int64_t c = 0; c < 3; ++c) {
      const Tensor expected = reference_row(GetParam(), start[c], gradients.select(1, c), 4);
      EXPECT_LT(largest_difference(rows[c], expected), bound) << "row " << c;
      EXPECT_GT(largest_difference(rows[c], start[c]), 0.01) << "row " << c;
    }
    EXPECT_TRUE(rows.narrow(1, 5, 3).equal(start.narrow(1, 5, 3))) << "buffers stay";
  }
}

TEST_P(EveryRule, RowsThatRunOutKeepModelStateAndStepNumber) {
  // Row 1 takes part in steps 0 and 3 only: for it they are its first and second.
  const Tensor start = at::randn({3, 19}, at::kDouble);
  const Tensor gradients = at::randn({4, 3, 19}, at::kDouble);
  const Tensor rows = start.clone();
  RowOptimizer optimizer(rule_of(GetParam()), layout_with_buffer());
  optimizer.reset(rows);
  for (std::int64_t s = 0; s < 4; ++s) {
    if (s == 0 || s == 3) {
      optimizer.step_(rows, gradients.select(0, s));
    } else {
      optimizer.step_(rows, gradients.select(0, s), 0, 1);
      optimizer.step_(rows, gradients.select(0, s), 2, 1);
    }
  }
  EXPECT_LT(
      largest_difference(rows[0], reference_row(GetParam(), start[0], gradients.select(1, 0), 4)),
      1e-13);
  const Tensor taken = gradients.select(1, 1).slice(0, 0, 4, 3);  // of steps 0 and 3
  EXPECT_LT(largest_difference(rows[1], reference_row(GetParam(), start[1], taken, 2)), 1e-13);
}

TEST_P(EveryRule, ResetForgets) {
  const Tensor start = at::randn({2, 19}, at::kDouble);
  const Tensor gradients = at::randn({3, 2, 19}, at::kDouble);
  RowOptimizer optimizer(rule_of(GetParam()), layout_with_buffer());
  const auto trained = [&] {
    const Tensor rows = start.clone();
    for (std::int64_t s = 0; s < 3; ++s) optimizer.step_(rows, gradients.select(0, s));
    return rows;
  };
  optimizer.reset(start);
  const Tensor fresh = trained();
  const Tensor used = trained();
  EXPECT_EQ(used.equal(fresh), GetParam() == "sgd") << "states and step numbers go on";
  optimizer.reset(start);
  EXPECT_TRUE(trained().equal(fresh));
}

TEST_P(EveryRule, RowsWithGapsBetweenThemMoveAsDenseOnes) {
  const Tensor start = at::randn({3, 19}, at::kDouble);
  const Tensor gradients = at::randn({3, 3, 19}, at::kDouble);
  const Tensor dense = start.clone();
  const Tensor lines = at::full({3, 32}, 7.0, at::kDouble);
  const Tensor rows = lines.narrow(1, 0, 19).copy_(start);
  RowOptimizer optimizer(rule_of(GetParam()), layout_with_buffer());
  for (const Tensor& moved : {dense, rows, dense, rows}) {
    optimizer.reset(moved);
    for (std::int64_t s = 0; s < 3; ++s) optimizer.step_(moved, gradients.select(0, s));
  }
  EXPECT_TRUE(rows.equal(dense));
  EXPECT_EQ(lines.narrow(1, 19, 13).sub(7).abs().max().item<double>(), 0);
}

TEST_P(EveryRule, LongGradientsAreShortened) {
  const Tensor start = at::randn({3, 19}, at::kDouble);
  const Tensor gradients = at::randn({4, 3, 19}, at::kDouble);
  gradients.select(1, 2).mul_(0.01);     // shorter than 1
  gradients.narrow(2, 5, 3).fill_(1e3);  // of a buffer: not its length
  const Tensor untouched = gradients.clone();
  const auto moved = [&](double length, const Tensor& by) {
    StepRule rule = rule_of(GetParam());
    rule.clip_norm = length;
    const Tensor rows = start.clone();
    RowOptimizer optimizer(rule, layout_with_buffer());
    optimizer.reset(rows);
    for (std::int64_t s = 0; s < 4; ++s) optimizer.step_(rows, by.select(0, s));
    return rows;
  };
  const Tensor rows = moved(1, gradients);
  EXPECT_TRUE(gradients.equal(untouched)) << "they are the caller's";
  const Tensor trainable = at::cat({gradients.narrow(2, 0, 5), gradients.narrow(2, 8, 11)}, 2);
  const Tensor lengths = trainable.norm(2, {2}, /*keepdim=*/true);
  const Tensor shorter = gradients.mul(lengths.add(1e-6).reciprocal().clamp_max(1));
  EXPECT_GT(lengths.narrow(1, 0, 2).min().item<double>(), 1);
  EXPECT_LT(largest_difference(rows, moved(0, shorter)), 1e-13);
  EXPECT_TRUE(rows[2].equal(moved(0, gradients)[2])) << "short ones stay, to the last bit";
  EXPECT_TRUE(moved(1e6, gradients).equal(moved(0, gradients)));
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryRule, ::testing::Values("sgd", "momentum", "nesterov", "adam"),
                         [](const auto& one) { return one.param; });

TEST(RowOptimizerTest, MovesOnlyRowsItWasResetFor) {
  RowOptimizer optimizer(rule_of("adam"), layout_with_buffer());
  const Tensor rows = at::randn({3, 19}, at::kDouble);
  EXPECT_THROW(optimizer.step_(rows, rows), std::logic_error);
  optimizer.reset(rows.narrow(0, 0, 2));
  EXPECT_THROW(optimizer.step_(rows, rows), std::logic_error);
  EXPECT_NO_THROW(optimizer.step_(rows, rows.clone(), 0, 2));
  EXPECT_THROW(optimizer.step_(rows.to(at::kFloat), rows.to(at::kFloat), 0, 2), std::logic_error);
  EXPECT_THROW(optimizer.step_(rows.narrow(1, 0, 18), rows.narrow(1, 0, 18), 0, 2),
               std::logic_error);
}

TEST(RowOptimizerTest, OnlySgdWithoutDecayIsPlain) {
  EXPECT_TRUE((StepRule{.kind = OptimizerKind::Sgd, .lr = 1}).is_plain());
  EXPECT_FALSE((StepRule{.kind = OptimizerKind::Sgd, .lr = 1, .weight_decay = 1e-4}).is_plain());
  EXPECT_FALSE((StepRule{.kind = OptimizerKind::Momentum, .lr = 1}).is_plain());
  EXPECT_FALSE((StepRule{.kind = OptimizerKind::Sgd, .lr = 1, .clip_norm = 5}).is_plain());
}

}  // namespace
}  // namespace fedhpc
