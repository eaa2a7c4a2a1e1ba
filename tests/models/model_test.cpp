#include "fedhpc/models/model.hpp"

#include <cmath>

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "fedhpc/training/loss.hpp"

#include "reference/nets.hpp"

// Every family of the registry on small inputs; what holds for one holds for all.
namespace fedhpc {
namespace {

constexpr std::int64_t kClients = 3;
constexpr std::int64_t kBatch = 5;
constexpr std::int64_t kClasses = 4;

/// Names a family and what differs from its defaults.
struct Case {
  std::string title;
  ModelOptions options;
  std::vector<std::int64_t> shape;
};

bool is_sequence_model(const std::string& name) {
  return name == "lstm_leaf" || name == "transformer";
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& name : testing::families_with_reference()) {
    Case one{name, {}, {2, 32, 32}};
    one.options.name = name;
    one.options.hidden = {6, 5};
    one.options.width = 0.0625;
    if (name == "mlr" || name == "mlr_sigmoid" || name == "dnn") one.shape = {1, 2, 4};
    if (name == "cnn_leaf" || name == "cnn_fedavg") one.shape = {2, 16, 17};
    if (name == "cnn2") one.shape = {2, 9, 8};
    if (name == "cnn4" || name == "cnn8") one.shape = {2, 16, 17};
    if (name == "resnet9" || name == "resnet18") one.shape = {2, 8, 8};
    if (is_sequence_model(name)) one.shape = {6};
    if (name == "lstm_leaf") {
      one.options.embedding = 3;
      one.options.units = 5;
      one.title = "lstm_leaf_all_places";
      one.options.places = Places::All;
      one.options.vocabulary = 7;
      one.options.padding = 0;
      all.push_back(one);
      one.title = name;
      one.options.places = Places::Last;
      one.options.vocabulary = std::nullopt;
      one.options.padding = std::nullopt;
    }
    if (name == "transformer") {
      one.options.embedding = 6;
      one.options.heads = 2;
      one.options.layers = 2;
      one.options.feed_forward = 7;
      one.options.dropout = 0;  // which autograd would draw otherwise
    }
    all.push_back(one);
    if (one.shape.back() < 8) continue;
    one.title += "_plain";  // without norm, with biases: other layers take over
    one.options.norm = NormChoice::None;
    one.options.bias = BiasChoice::True;
    all.push_back(one);
    one.title = name + "_group_norm";
    one.options.norm = NormChoice::Group;
    one.options.bias = BiasChoice::Auto;
    one.options.width = name == "cnn2" ? 0.25 : 0.125;  // two groups of channels
    all.push_back(one);
    one.options.width = 0.0625;
    one.options.bias = BiasChoice::True;
    if (name != "resnet18") continue;
    one.title = name + "_imagenet";
    one.options.norm = NormChoice::Auto;
    one.options.stem = Stem::Imagenet;
    one.shape = {3, 33, 32};
    all.push_back(one);
  }
  return all;
}

class EveryModel : public ::testing::TestWithParam<Case> {
 protected:
  EveryModel() {
    at::manual_seed(2);  // no kink lies where finite differences look
    const Case& of = GetParam();
    const bool every = of.options.name == "transformer" || of.options.places == Places::All;
    model_ = make_model(of.options, of.shape, {kClasses, every ? of.shape[0] : 1});
    weights_ = at::zeros({kClients, model_->layout()->size()}, at::kDouble);
    for (const Field& field : model_->layout()->fields()) {
      // Of a size that keeps a deep network's values near 1.
      const double scale = field.shape.size() > 1 ? std::sqrt(2.0 / double(field.fan_in)) : 0.5;
      Tensor part = weights_.narrow(1, field.offset, field.size);
      part.copy_(at::randn({kClients, field.size}, at::kDouble).mul(scale));
      if (field.initial == Initial::One) part.copy_(part.abs().add(0.5));
    }
    input_ = at::randn({kClients, kBatch, model_->features()}, at::kDouble);
    if (is_sequence_model(GetParam().options.name)) {  // none is 0, which may have no gradient
      input_ = at::randint(1, kClasses, input_.sizes(), at::kDouble);
    }
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
    arena.masked_fill_(columns(Tag::Buffer).ne(0), 0);    // and buffers have no gradient
    model_->backward(weights, activations, {.rows = arena, .scale = 1, .keep = 0});
    return arena;
  }

  /// 1 in the columns that carry `tag`, else 0: [P].
  Tensor columns(Tag tag) const {
    Tensor mask = at::zeros({model_->layout()->size()}, at::kDouble);
    for (const Field& field : model_->layout()->fields()) {
      if (has(field.tags, tag)) mask.narrow(0, field.offset, field.size).fill_(1);
    }
    return mask;
  }

  Tensor samples(std::int64_t c) const {
    std::vector<std::int64_t> shape{kBatch};
    shape.insert(shape.end(), GetParam().shape.begin(), GetParam().shape.end());
    return input_[c].view(shape);
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
    const Tensor expected =
        at::cross_entropy_loss(testing::reference_logits(GetParam().options, *model_->layout(), row,
                                                         samples(c), Use::Training),
                               labels_[c]);
    expected.backward();
    EXPECT_NEAR(loss[static_cast<std::size_t>(c)] / kBatch, expected.item<double>(), 1e-12);
    EXPECT_LE(actual[c].sub(row.grad()).norm().item<double>(),
              1e-11 * row.grad().norm().item<double>());
  }
}

TEST_P(EveryModel, EvaluatesByItsBuffers) {
  const Tensor before = weights_.clone();
  const Activations activations =
      model_->make_activations(kClients, kBatch, at::kDouble, Use::Evaluation);
  activations.input().copy_(input_);
  model_->forward(weights_, activations);
  EXPECT_TRUE(weights_.equal(before));
  for (std::int64_t c = 0; c < kClients; ++c) {
    const Tensor expected = testing::reference_logits(GetParam().options, *model_->layout(),
                                                      weights_[c], samples(c), Use::Evaluation);
    EXPECT_LE(activations.logits()[c].sub(expected).norm().item<double>(),
              1e-12 * expected.norm().item<double>());  // all units may be dead: 0 <= 0
  }
}

TEST_P(EveryModel, TrainingMovesBuffersAndNothingElse) {
  const Tensor before = weights_.clone();
  std::vector<double> loss;
  const Tensor arena = gradient(weights_, input_, labels_, loss);
  const Tensor buffers = columns(Tag::Buffer);
  EXPECT_TRUE(weights_.mul(buffers.eq(0)).equal(before.mul(buffers.eq(0))));
  EXPECT_EQ(weights_.equal(before), model_->layout()->count(Tag::Buffer) == 0);
  EXPECT_EQ(arena.mul(buffers).abs().max().item<double>(), 0);
}

TEST_P(EveryModel, TrainsOnBatchesOfTwo) {
  Tensor rows = weights_.to(at::kFloat);
  const Activations activations = model_->make_activations(kClients, 2, at::kFloat, Use::Training);
  for (int step = 0; step < 3; ++step) {
    activations.input().copy_(input_.narrow(1, 0, 2));
    model_->forward(rows, activations);
    std::vector<double> loss(kClients, 0.0);
    softmax_cross_entropy(activations.logits(), labels_.narrow(1, 0, 2),
                          activations.logit_gradient(), loss.data());
    model_->backward(rows, activations, {.rows = rows, .scale = -0.01, .keep = 1});
  }
  EXPECT_TRUE(rows.isfinite().all().item<bool>());
}

TEST_P(EveryModel, GradientEqualsFiniteDifferences) {
  std::vector<double> loss;
  const Tensor direction = at::randn_like(weights_).mul(columns(Tag::Trainable));
  const Tensor slope = gradient(weights_, input_, labels_, loss).mul(direction).sum(1);
  constexpr double kStep = 1e-7;
  std::vector<double> above;
  std::vector<double> below;
  gradient(weights_.add(direction, kStep), input_, labels_, above);
  gradient(weights_.sub(direction, kStep), input_, labels_, below);
  for (std::size_t c = 0; c < kClients; ++c) {
    const double expected = (above[c] - below[c]) / (2 * kStep * kBatch);
    EXPECT_NEAR(slope[static_cast<std::int64_t>(c)].item<double>(), expected,
                1e-4 * std::abs(expected) + 1e-5);
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
  // The buffers have moved once more than in weights_.
  const Tensor trained = columns(Tag::Trainable);
  const Tensor expected = weights_.sub(plain, 0.1).mul(trained);
  moved.mul_(trained);
  EXPECT_LT(moved.sub(expected).norm().item<double>(), 1e-13 * expected.norm().item<double>());
}

TEST_P(EveryModel, SinkMayTakeSomeColumnsOnly) {
  std::vector<double> loss;
  const Tensor whole = gradient(weights_, input_, labels_, loss);
  const Activations activations =
      model_->make_activations(kClients, kBatch, at::kDouble, Use::Training);
  activations.input().copy_(input_);
  for (const Columns& taken :
       {Columns{.with = Tag::Head}, Columns{.without = Tag::Head}, Columns{.with = Tag::Norm},
        Columns{.without = Tag::Norm}, Columns{.with = Tag::Head, .without = Tag::Uncompressed}}) {
    model_->forward(weights_, activations);
    softmax_cross_entropy(activations.logits(), labels_, activations.logit_gradient(), loss.data());
    constexpr double kUntouched = 7;
    const Tensor arena = at::full_like(weights_, kUntouched);
    model_->backward(weights_, activations,
                     {.rows = arena, .scale = 1, .keep = 0, .columns = taken});
    Tensor expected = at::full_like(weights_, kUntouched);
    for (const auto& [begin, end] : model_->layout()->ranges(Tag::Trainable, taken)) {
      expected.narrow(1, begin, end - begin).copy_(whole.narrow(1, begin, end - begin));
    }
    EXPECT_LE(arena.sub(expected).norm().item<double>(), 1e-12 * whole.norm().item<double>());
    EXPECT_TRUE(arena.eq(kUntouched).equal(expected.eq(kUntouched)));
  }
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

INSTANTIATE_TEST_SUITE_P(Registry, EveryModel, ::testing::ValuesIn(cases()),
                         [](const auto& one) { return one.param.title; });

}  // namespace
}  // namespace fedhpc
