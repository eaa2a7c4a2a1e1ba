#include "fedhpc/models/model.hpp"

#include <cmath>

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "fedhpc/core/rng.hpp"
#include "fedhpc/training/loss.hpp"

// Every family of the registry on small inputs; what holds for one holds for all.
namespace fedhpc {
namespace {

constexpr std::int64_t kClients = 3;
constexpr std::int64_t kBatch = 5;
constexpr std::int64_t kClasses = 4;

class EveryModel : public ::testing::TestWithParam<std::string> {
 protected:
  EveryModel() {
    ModelOptions options;
    options.name = GetParam();
    options.hidden = {6, 5};
    model_ = make_model(options, {1, 2, 4}, kClasses);
    weights_ = at::randn({kClients, model_->layout()->size()}, at::kDouble);
    input_ = at::randn({kClients, kBatch, model_->features()}, at::kDouble);
    labels_ = at::randint(kClasses, {kClients, kBatch}, at::kLong);
  }

  /// Gradient of the mean loss of a stack of clients, [C, P], with their summed losses.
  Tensor gradient(const Tensor& weights, const Tensor& input, const Tensor& labels,
                  std::vector<double>& loss) const {
    const Activations activations =
        model_->make_activations(input.size(0), input.size(1), at::kDouble, Use::Training);
    activations.input().copy_(input);
    model_->forward(weights, activations);
    loss.assign(static_cast<std::size_t>(input.size(0)), 0.0);
    softmax_cross_entropy(activations.logits(), labels, activations.logit_gradient(), loss.data());
    Tensor arena = at::full_like(weights, std::nan(""));  // whatever is not written shows
    model_->backward(weights, activations, {.rows = arena, .scale = 1, .keep = 0});
    return arena;
  }

  std::unique_ptr<Model> model_;
  Tensor weights_;  // [C, P]
  Tensor input_;    // [C, B, D]
  Tensor labels_;   // [C, B]
};

TEST_P(EveryModel, GradientEqualsAutograd) {
  std::vector<double> loss;
  const Tensor actual = gradient(weights_, input_, labels_, loss);
  for (std::int64_t c = 0; c < kClients; ++c) {
    const Tensor row = weights_[c].clone().requires_grad_(true);
    Tensor hidden = input_[c];
    const auto& fields = model_->layout()->fields();
    for (std::size_t i = 0; i < fields.size(); i += 2) {
      const auto part = [&](const Field& f) {
        return row.narrow(0, f.offset, f.size).view(f.shape);
      };
      hidden = at::linear(hidden, part(fields[i]), part(fields[i + 1]));
      if (i + 2 < fields.size()) hidden = at::relu(hidden);
    }
    const Tensor expected = at::cross_entropy_loss(hidden, labels_[c]);
    expected.backward();
    EXPECT_NEAR(loss[static_cast<std::size_t>(c)] / kBatch, expected.item<double>(), 1e-12);
    EXPECT_LT(actual[c].sub(row.grad()).norm().item<double>(),
              1e-12 * row.grad().norm().item<double>());
  }
}

TEST_P(EveryModel, GradientEqualsFiniteDifferences) {
  std::vector<double> loss;
  const Tensor direction = at::randn_like(weights_);
  const Tensor slope = gradient(weights_, input_, labels_, loss).mul(direction).sum(1);
  constexpr double kStep = 1e-5;
  std::vector<double> above;
  std::vector<double> below;
  gradient(weights_.add(direction, kStep), input_, labels_, above);
  gradient(weights_.sub(direction, kStep), input_, labels_, below);
  for (std::size_t c = 0; c < kClients; ++c) {
    const double expected = (above[c] - below[c]) / (2 * kStep * kBatch);
    EXPECT_NEAR(slope[static_cast<std::int64_t>(c)].item<double>(), expected,
                1e-6 * std::abs(expected) + 1e-7);
  }
}

TEST_P(EveryModel, ClientsInABlockAreAsAlone) {
  std::vector<double> together;
  const Tensor block = gradient(weights_, input_, labels_, together);
  for (std::int64_t c = 0; c < kClients; ++c) {
    std::vector<double> alone;
    const Tensor row =
        gradient(weights_.narrow(0, c, 1), input_.narrow(0, c, 1), labels_.narrow(0, c, 1), alone);
    EXPECT_TRUE(row[0].equal(block[c]));
    EXPECT_EQ(alone.front(), together[static_cast<std::size_t>(c)]);
  }
}

TEST_P(EveryModel, WorksOnPartsOfItsBuffers) {
  // Clients 1 and 2 with 3 of 5 samples: strided views, as ragged steps use them.
  const Activations whole = model_->make_activations(kClients, kBatch, at::kDouble, Use::Training);
  const Activations part = whole.narrow(1, 2, 3);
  const Tensor input = input_.narrow(0, 1, 2).narrow(1, 0, 3);
  const Tensor labels = labels_.narrow(0, 1, 2).narrow(1, 0, 3);
  part.input().copy_(input);
  const Tensor weights = weights_.narrow(0, 1, 2);
  model_->forward(weights, part);
  std::vector<double> loss(2, 0.0);
  softmax_cross_entropy(part.logits(), labels, part.logit_gradient(), loss.data());
  Tensor arena = at::zeros_like(weights_);
  model_->backward(weights, part, {.rows = arena.narrow(0, 1, 2), .scale = 1, .keep = 0});

  std::vector<double> expected_loss;
  const Tensor expected =
      gradient(weights.contiguous(), input.contiguous(), labels.contiguous(), expected_loss);
  EXPECT_TRUE(arena.narrow(0, 1, 2).equal(expected));
  EXPECT_EQ(loss, expected_loss);
  EXPECT_TRUE(arena[0].eq(0).all().item<bool>());
}

TEST_P(EveryModel, SinkScalesAndKeeps) {
  std::vector<double> loss;
  const Tensor plain = gradient(weights_, input_, labels_, loss);
  const Activations activations =
      model_->make_activations(kClients, kBatch, at::kDouble, Use::Training);
  activations.input().copy_(input_);
  Tensor moved = weights_.clone();
  model_->forward(moved, activations);
  softmax_cross_entropy(activations.logits(), labels_, activations.logit_gradient(), loss.data());
  model_->backward(moved, activations, {.rows = moved, .scale = -0.1, .keep = 1});
  const Tensor expected = weights_.sub(plain, 0.1);
  EXPECT_LT(moved.sub(expected).norm().item<double>(), 1e-13 * expected.norm().item<double>());
}

TEST_P(EveryModel, OneRowServesAllClients) {
  // Stride 0, as evaluation of one model uses it.
  const Tensor shared = weights_.narrow(0, 0, 1).expand({kClients, -1});
  std::vector<double> loss;
  const Activations activations =
      model_->make_activations(kClients, kBatch, at::kDouble, Use::Evaluation);
  activations.input().copy_(input_);
  model_->forward(shared, activations);
  const Tensor logits = activations.logits().clone();
  model_->forward(shared.contiguous(), activations);
  EXPECT_TRUE(logits.equal(activations.logits()));
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& [name, sentence] : model_registry()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryModel, ::testing::ValuesIn(model_names()),
                         [](const auto& one) { return one.param; });

TEST(Models, CountParameters) {
  const auto count = [](const std::string& name, std::vector<std::int64_t> hidden) {
    ModelOptions options;
    options.name = name;
    options.hidden = std::move(hidden);
    return make_model(options, {1, 28, 28}, 10)->layout()->size();
  };
  EXPECT_EQ(count("mlr", {}), 7850);
  EXPECT_EQ(count("dnn", {100}), 79510);
  EXPECT_EQ(count("dnn", {500, 200}), 494710);
}

TEST(Models, UsePyTorchNamesInOrder) {
  ModelOptions options;
  options.name = "dnn";
  options.hidden = {7};
  const auto model = make_model(options, {3}, 2);
  std::vector<std::string> names;
  for (const Field& field : model->layout()->fields()) names.push_back(field.name);
  EXPECT_EQ(names, (std::vector<std::string>{"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"}));
  EXPECT_EQ(model->layout()->field("fc1.weight").shape, (std::vector<std::int64_t>{7, 3}));
  EXPECT_TRUE(has(model->layout()->field("fc2.weight").tags, Tag::Head));
  EXPECT_FALSE(has(model->layout()->field("fc1.weight").tags, Tag::Head));
  EXPECT_EQ(model->layout()->count(Tag::Head), 2 * 7 + 2);
}

TEST(Models, DrawInitialWeightsPerParameter) {
  Layout layout;
  layout.add("a.weight", {4, 9}, 9, Tag::Trainable);
  layout.add("a.bias", {4}, 9, Tag::Trainable);
  const Tensor row = initial_row(layout, 3, at::kDouble);
  Draws draws({.seed = 3, .purpose = Purpose::Init, .client = 1});
  for (std::int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(row[0][36 + i].item<double>(), 1.0 / std::sqrt(9.0) * (2 * draws.uniform() - 1));
  }
  EXPECT_LE(row.abs().max().item<double>(), 1.0 / 3);
  EXPECT_GT(row.abs().max().item<double>(), 0.25);
  EXPECT_TRUE(initial_row(layout, 3, at::kFloat).equal(row.to(at::kFloat)));
  EXPECT_FALSE(initial_row(layout, 4, at::kDouble).equal(row));
}

TEST(Rows, CopiesOwnTheirMemory) {
  auto layout = std::make_shared<Layout>();
  layout->add("w", {3}, 3, Tag::Trainable);
  const Rows one{at::zeros({1, 3}), layout};
  for (const std::int64_t count : {1, 2}) {
    const Rows copies = one.replicate(count);
    EXPECT_EQ(copies.count(), count);
    copies.values.fill_(5);
    EXPECT_EQ(one.values.sum().item<float>(), 0);
  }
}

}  // namespace
}  // namespace fedhpc
