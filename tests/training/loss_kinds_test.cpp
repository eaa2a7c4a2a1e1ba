#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "fedhpc/core/error.hpp"
#include "fedhpc/training/loss.hpp"

#include "data/data_support.hpp"

// Each loss against LibTorch's of one client's batch, value and gradient, and its scores.
namespace fedhpc {
namespace {

using namespace testing_support;

constexpr std::int64_t kClients = 3;
constexpr std::int64_t kBatch = 5;
constexpr std::int64_t kPlaces = 4;
constexpr std::int64_t kClasses = 6;

Targets whole(std::vector<std::int64_t> values) {
  return {.kind = Targets::Kind::Whole, .count = kPlaces, .values = std::move(values)};
}
Targets numbers() { return {.kind = Targets::Kind::Numbers, .count = kPlaces}; }
Targets labels_to(std::int64_t last) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(last + 1));
  std::iota(values.begin(), values.end(), 0);
  return whole(values);
}

/// Compares the sums and gradients of a stack with those of `mean_of` on each client's batch.
template <typename Mean>
void expect_equal(const Loss& loss, const Tensor& outputs, const Tensor& targets,
                  const std::vector<double>& counted, const Mean& mean_of) {
  const Tensor gradient = at::full_like(outputs, 9);
  std::vector<double> sums(kClients, 10);  // sums are added
  std::vector<double> counts(kClients, 20);
  loss.take(outputs, targets, gradient, sums.data(), counts.data());
  for (std::int64_t c = 0; c < kClients; ++c) {
    const auto i = static_cast<std::size_t>(c);
    EXPECT_EQ(counts[i], 20 + counted[i]);
    const Tensor leaf = outputs[c].clone().requires_grad_(true);
    const Tensor mean = mean_of(leaf, targets[c]);
    mean.backward();
    EXPECT_NEAR(sums[i] - 10, counted[i] * mean.template item<double>(), 1e-12 * (10 + sums[i]));
    EXPECT_LT(gradient[c].sub(leaf.grad()).abs().max().template item<double>(), 1e-14);
  }
  // The gradient may take the outputs' place, and may not be wanted.
  const Tensor same = outputs.clone();
  std::vector<double> again(kClients, 10);
  std::vector<double> ignored(kClients);
  loss.take(same, targets, same, again.data(), ignored.data());
  EXPECT_TRUE(same.equal(gradient));
  EXPECT_EQ(again, sums);
  loss.take(outputs, targets, {}, again.data(), ignored.data());
}

TEST(Losses, CrossEntropyOfLabelsWithSmoothing) {
  const Tensor logits = at::randn({kClients, kBatch, kClasses}, at::kDouble).mul(3);
  const Tensor labels = at::randint(kClasses, {kClients, kBatch}, at::kLong);
  for (const double smoothing : {0.0, 0.1, 1.0}) {
    const Loss loss({.label_smoothing = smoothing}, {}, kClasses);
    EXPECT_TRUE(loss.of_labels());
    expect_equal(loss, logits, labels, {kBatch, kBatch, kBatch},
                 [&](const Tensor& z, const Tensor& y) {
                   return at::cross_entropy_loss(z, y, {}, at::Reduction::Mean, -100, smoothing);
                 });
  }
}

TEST(Losses, CrossEntropyOfSequencesCountsPlacesThatAreNotIgnored) {
  const Tensor logits = at::randn({kClients, kBatch, kPlaces * kClasses}, at::kDouble).mul(3);
  for (const std::int64_t ignored : {-100, 2}) {
    Tensor labels = at::randint(kClasses, {kClients, kBatch, kPlaces}, at::kLong);
    labels.masked_fill_(at::randint(3, labels.sizes(), at::kLong).eq(0), ignored);
    std::vector<double> counted;
    for (std::int64_t c = 0; c < kClients; ++c) {
      counted.push_back(static_cast<double>(labels[c].ne(ignored).sum().item<std::int64_t>()));
    }
    ASSERT_LT(counted[0], kBatch * kPlaces);
    for (const double smoothing : {0.0, 0.2}) {
      std::vector<std::int64_t> values = labels_to(kClasses - 1).values;
      if (ignored < 0) values.insert(values.begin(), ignored);
      const Loss loss({.label_smoothing = smoothing, .ignored_label = ignored}, whole(values), 1);
      EXPECT_TRUE(loss.of_sequences());
      EXPECT_EQ(loss.outputs(), kPlaces * kClasses);
      expect_equal(loss, logits, labels, counted, [&](const Tensor& z, const Tensor& y) {
        return at::cross_entropy_loss(z.view({-1, kClasses}), y.view(-1), {}, at::Reduction::Mean,
                                      ignored, smoothing);
      });
    }
  }
}

TEST(Losses, ABatchWithoutACountedPlaceHasNone) {
  const Loss loss({}, whole({-100, 0, 1}), 1);
  const Tensor logits = at::randn({1, 2, kPlaces * 2}, at::kDouble);
  const Tensor gradient = at::full_like(logits, 9);
  double sum = 0;
  double count = 0;
  loss.take(logits, at::full({1, 2, kPlaces}, -100, at::kLong), gradient, &sum, &count);
  EXPECT_EQ(sum, 0);
  EXPECT_EQ(count, 0);
  EXPECT_TRUE(gradient.eq(0).all().item<bool>());
}

TEST(Losses, BinaryCrossEntropy) {
  const Tensor logits = at::randn({kClients, kBatch, kPlaces}, at::kDouble).mul(10);
  const Tensor bits = at::randint(2, {kClients, kBatch, kPlaces}, at::kLong);
  const Loss loss({}, whole({0, 1}), 1);
  EXPECT_EQ(loss.kind(), LossKind::BinaryCrossEntropy);
  EXPECT_EQ(loss.outputs(), kPlaces);
  expect_equal(loss, logits, bits, {kBatch, kBatch, kBatch}, [](const Tensor& z, const Tensor& y) {
    return at::binary_cross_entropy_with_logits(z, y.to(at::kDouble), {}, {}, at::Reduction::Mean);
  });
  // Of two classes one output tells which.
  const Loss of_two({.kind = LossKind::BinaryCrossEntropy}, {}, 2);
  EXPECT_EQ(of_two.outputs(), 1);
  expect_equal(of_two, logits.narrow(2, 0, 1).contiguous(), bits.select(2, 0).contiguous(),
               {kBatch, kBatch, kBatch}, [](const Tensor& z, const Tensor& y) {
                 return at::binary_cross_entropy_with_logits(z.squeeze(1), y.to(at::kDouble), {},
                                                             {}, at::Reduction::Mean);
               });
}

TEST(Losses, MeanSquaredError) {
  const Tensor outputs = at::randn({kClients, kBatch, kPlaces}, at::kDouble);
  const Tensor targets = at::randn({kClients, kBatch, kPlaces}, at::kDouble);
  const Loss loss({}, numbers(), 1);
  EXPECT_EQ(loss.kind(), LossKind::MeanSquaredError);
  expect_equal(loss, outputs, targets, {kBatch, kBatch, kBatch},
               [](const Tensor& z, const Tensor& y) { return at::mse_loss(z, y); });
}

TEST(Losses, InFloat32AreThoseOfFloat64Rounded) {
  const auto distance = [](const Loss& loss, const Tensor& outputs, const Tensor& targets) {
    std::vector<double> sums(kClients);
    std::vector<double> single(kClients);
    std::vector<double> counts(kClients);
    const bool real = targets.is_floating_point();
    loss.take(outputs, targets, {}, sums.data(), counts.data());
    loss.take(outputs.to(at::kFloat), real ? targets.to(at::kFloat) : targets, {}, single.data(),
              counts.data());
    double largest = 0;
    for (std::size_t c = 0; c < sums.size(); ++c) {
      largest = std::max(largest, std::abs(single[c] / sums[c] - 1));
    }
    return largest;
  };
  const Tensor wide = at::randn({kClients, kBatch, kPlaces * kClasses}, at::kDouble);
  const Tensor narrow = at::randn({kClients, kBatch, kPlaces}, at::kDouble);
  EXPECT_LT(distance(Loss({.label_smoothing = .1}, labels_to(kClasses - 1), 1), wide,
                     at::randint(kClasses, {kClients, kBatch, kPlaces}, at::kLong)),
            1e-5);
  EXPECT_LT(distance(Loss({}, whole({0, 1}), 1), narrow,
                     at::randint(2, {kClients, kBatch, kPlaces}, at::kLong)),
            1e-5);
  EXPECT_LT(
      distance(Loss({}, numbers(), 1), narrow, at::randn({kClients, kBatch, kPlaces}, at::kDouble)),
      1e-5);
}

/// [M][B]
std::vector<std::vector<double>> scores_of(const Loss& loss, const Tensor& outputs,
                                           const Tensor& targets) {
  const std::int64_t batch = outputs.size(0);
  const Tensor scores = at::full({loss.measures(), batch + 2}, 9, at::kDouble);
  loss.score(outputs, targets, scores.data_ptr<double>() + 1, scores.size(1));
  EXPECT_TRUE(scores.select(1, 0).eq(9).all().item<bool>() &&
              scores.select(1, batch + 1).eq(9).all().item<bool>());
  std::vector<std::vector<double>> rows;
  for (std::int64_t m = 0; m < loss.measures(); ++m) {
    const Tensor row = scores[m].narrow(0, 1, batch).contiguous();
    rows.emplace_back(row.const_data_ptr<double>(), row.const_data_ptr<double>() + batch);
  }
  return rows;
}

TEST(Scores, OfSequencesAreOfPlacesThatCount) {
  const Loss loss({.label_smoothing = .3},
                  {.kind = Targets::Kind::Whole, .count = 2, .values = {-100, 0, 1, 2}}, 1);
  const Tensor z = at::tensor({0.0, 1.0, 1.0, 5.0, 0.0, 0.0,  // a tie, then right
                               0.0, 1.0, 0.0, 0.0, 0.0, 0.0})
                       .view({2, 6});
  const Tensor y =
      at::tensor({std::int64_t{2}, std::int64_t{0}, std::int64_t{-100}, std::int64_t{1}})
          .view({2, 2});
  const auto scores = scores_of(loss, z, y);
  EXPECT_EQ(scores[0], (std::vector<double>{1, 0})) << "the lowest class wins a tie";
  EXPECT_NEAR(scores[1][0], std::log(1 + 2 * std::exp(1.0)) - 1 + std::log1p(2 * std::exp(-5.0)),
              1e-14)
      << "tests do without smoothing";
  EXPECT_NEAR(scores[1][1], std::log(3), 1e-14);
  EXPECT_EQ(scores[2], (std::vector<double>{2, 1}));
}

TEST(Scores, OfSeveralLabelsAreAllOrNoneAndTheirHits) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Loss loss({}, {.kind = Targets::Kind::Whole, .count = 2, .values = {0, 1}}, 1);
  const Tensor z = at::tensor({2.0, -1.0, 2.0, 1.0, 0.0, -1.0, -3.0, nan}).view({4, 2});
  const Tensor y = at::tensor({1, 0, 1, 0, 0, 1, 0, 0}).to(at::kLong).view({4, 2});
  const auto scores = scores_of(loss, z, y);
  EXPECT_EQ(scores[0], (std::vector<double>{1, 0, 0, 0}));
  EXPECT_NEAR(scores[1][0], (std::log1p(std::exp(-2.0)) + std::log1p(std::exp(-1.0))) / 2, 1e-14);
  EXPECT_EQ(scores[2], (std::vector<double>{1, 1, 0, 0}));
  EXPECT_EQ(scores[3], (std::vector<double>{2, 3, 1, 0}));
  EXPECT_TRUE(std::isnan(scores[1][3]));
}

TEST(Scores, OfNumbersAreTheirMeanSquaredErrors) {
  const Loss loss({}, {.kind = Targets::Kind::Numbers, .count = 2}, 1);
  const auto scores = scores_of(loss, at::tensor({1.0, 2.0, 3.0, 4.0}).view({2, 2}),
                                at::tensor({1.0, 4.0, 0.0, 3.0}).view({2, 2}));
  EXPECT_EQ(scores[0], (std::vector<double>{0, 0}));
  EXPECT_EQ(scores[1], (std::vector<double>{2, 5}));
}

TEST(Losses, AreRefusedForOtherTargets) {
  const auto refusal = [](const LossOptions& options, const Targets& targets,
                          std::int64_t classes = 1) {
    return message_of<ConfigError>([&] { Loss(options, targets, classes); });
  };
  expect_in("4 real numbers a sample: use mean_squared_error or auto",
            refusal({.kind = LossKind::CrossEntropy}, numbers()));
  expect_in(
      "one label of 3 a sample: it needs targets that are real numbers: floats in a file, or "
      "whole numbers with data.label_kind = number",
      refusal({.kind = LossKind::MeanSquaredError}, {}, 3));
  expect_in("it needs targets 0 and 1", refusal({.kind = LossKind::BinaryCrossEntropy}, {}, 3));
  expect_in("4 whole numbers from 0 to 2 a sample: it needs targets 0 and 1",
            refusal({.kind = LossKind::BinaryCrossEntropy}, labels_to(2)));
  expect_in("the label -1 is below 0", refusal({}, whole({-1, 0, 1})));
  expect_in("train.label_smoothing = 0.1 has no say with the loss mean_squared_error",
            refusal({.label_smoothing = .1}, numbers()));
  expect_in("train.ignored_label = 0 is for labels of a sequence",
            refusal({.ignored_label = 0}, {}, 3));
  expect_in("the model has 9 outputs a sample and the data's targets ask for 12, 4 places of 3",
            message_of<ConfigError>([] { Loss({}, labels_to(2), 1).of_outputs(9); }));
  expect_in("the model has 5 outputs a sample and the data's targets ask for 4, 4 values",
            message_of<ConfigError>([] { Loss({}, numbers(), 1).of_outputs(5); }));
  const Loss of_places = Loss({}, labels_to(2), 1).of_outputs(12);
  for (const Shape& fits : {Shape{}, Shape{12}, Shape{4, 3}, Shape{4, 1, 3}, Shape{2, 2, 3}}) {
    EXPECT_NO_THROW(of_places.check_shape(fits));
  }
  expect_in("the model gives 3 x 4 values a sample, and the loss reads 4 rows of 3: the last",
            message_of<ConfigError>([&] {
              of_places.check_shape({3, 4});
            }));
  const Loss of_label = Loss({}, {}, 12).of_outputs(12);
  EXPECT_NO_THROW(of_label.check_shape({12, 1, 1}));
  expect_in("the loss reads one row of 12", message_of<ConfigError>([&] {
              of_label.check_shape({4, 3});
            }));
  EXPECT_NO_THROW(Loss({}, numbers(), 1).of_outputs(4).check_shape({2, 2}));
  Targets few = whole({-100, 0, 1});
  few.classes = 80;
  EXPECT_EQ(Loss({}, few, 1).outputs(), kPlaces * 80) << "more classes than places show";
  few.values = {0, 1};
  EXPECT_EQ(Loss({}, few, 1).outputs(), kPlaces * 80) << "not several yes or no";
  few.values = {0, 80};
  expect_in("the label 80 is none of the 80 classes that the data name", refusal({}, few));
  EXPECT_EQ(Loss({.ignored_label = 80}, few, 1).outputs(), kPlaces * 80);
  EXPECT_EQ(Loss({}, labels_to(2), 1).of_outputs(20).outputs(), 20) << "classes without a label";
}

}  // namespace
}  // namespace fedhpc
