#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "fixtures/layer_cases.hpp"

// Layers of descriptions against autograd, one client at a time.
namespace fedhpc {
namespace {

using testing::LayerCase;

constexpr std::int64_t kClients = 5;
constexpr std::int64_t kBatch = 4;

/// How a case is run.
struct Setting {
  at::ScalarType type = at::kDouble;
  double scale = 1;
  double keep = 0;
  bool ragged = false;  // clients 1 to 3 with 3 samples of each
};

double size_of(const Tensor& values) {
  return 1 + (values.numel() == 0 ? 0 : values.abs().max().item<double>());
}

void expect_near(const Tensor& actual, const Tensor& expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(actual.numel(), expected.numel()) << what;
  const Tensor difference = actual.to(at::kDouble).flatten().sub(expected.flatten());
  EXPECT_LE(difference.abs().max().item<double>(), tolerance * size_of(expected)) << what;
}

/// A case with random numbers.
struct Trial {
  explicit Trial(const LayerCase& one)
      : of(one),
        model(one.model()),
        rows(at::randn({kClients, model->layout()->size()}, at::kDouble)),
        input(one.input(kClients, kBatch)),
        dy(at::randn({kClients, kBatch, model->classes()}, at::kDouble)) {}

  /// The value for client c, and what autograd finds.
  struct Expected {
    Tensor y;
    Tensor dx;   // of the probe's value
    Tensor row;  // [P]
  };
  Expected expected(std::int64_t c, std::int64_t batch) const {
    const Tensor row = rows[c].clone().requires_grad_(true);
    const auto field = [&](const std::string& name) {
      const Field& f = model->layout()->field(name);
      return row.narrow(0, f.offset, f.size).view(f.shape);
    };
    Shape shape = of.input_shape();
    shape.insert(shape.begin(), batch);
    Tensor x = input[c].narrow(0, 0, batch).reshape(shape);
    if (of.probed) {
      x = at::linear(x, field("probe.weight"), field("probe.bias"));
      x.retain_grad();
    }
    const Tensor y = of.expected(x, field).reshape({batch, -1});
    Expected found{.y = y.detach(), .dx = {}, .row = at::zeros_like(rows[c])};
    if (!y.requires_grad()) return found;
    y.mul(dy[c].narrow(0, 0, batch)).sum().backward();
    if (of.probed) found.dx = x.grad();
    found.row = row.grad();
    return found;
  }

  void compare(const Setting& setting) const {
    const double tolerance = setting.type == at::kDouble ? 1e-11 : 2e-5;
    const std::int64_t first = setting.ragged ? 1 : 0;
    const std::int64_t count = setting.ragged ? 3 : kClients;
    const std::int64_t batch = setting.ragged ? 3 : kBatch;
    const Activations whole =
        model->make_activations(kClients, kBatch, setting.type, Use::Training);
    const Activations part = whole.narrow(first, count, batch);
    const auto part_of = [&](const Tensor& stack) {
      return stack.narrow(0, first, count).narrow(1, 0, batch).to(setting.type);
    };
    const Tensor weights = rows.to(setting.type).clone();
    const Tensor before = at::randn(rows.sizes(), at::kDouble);
    const Tensor arena = before.to(setting.type).clone();
    for (int again = 0; again < 2; ++again) {  // in memory that a pass has left
      arena.copy_(before);
      part.input().copy_(part_of(input));
      model->forward(weights.narrow(0, first, count), part);
      part.logit_gradient().copy_(part_of(dy));
      const Tensor logits = part.logits().clone();
      model->backward(
          weights.narrow(0, first, count), part,
          {.rows = arena.narrow(0, first, count), .scale = setting.scale, .keep = setting.keep});
      for (std::int64_t c = 0; c < count; ++c) {
        const Expected one = expected(first + c, batch);
        expect_near(logits[c], one.y, tolerance, "values");
        if (one.dx.defined()) expect_near(part.gradients[1][c], one.dx, tolerance, "gradients");
        expect_near(arena[first + c],
                    before[first + c].mul(setting.keep).add(one.row, setting.scale), tolerance,
                    "sink");
      }
    }
    expect_near(weights, rows, 1e-6, "weights stay");
  }

  /// What clients [first, first + count) get in memory of their own.
  struct Outcome {
    Tensor logits;
    Tensor scores;  // in evaluation
    Tensor arena;
  };
  Outcome outcome(at::ScalarType type, std::int64_t first, std::int64_t count) const {
    const auto part_of = [&](const Tensor& stack) {
      return stack.narrow(0, first, count).to(type).contiguous();
    };
    const Tensor weights = part_of(rows);
    const Activations a = model->make_activations(count, kBatch, type, Use::Training);
    a.input().copy_(part_of(input));
    model->forward(weights, a);
    a.logit_gradient().copy_(part_of(dy));
    Outcome found{.logits = a.logits().clone(), .scores = {}, .arena = weights.clone()};
    model->backward(weights, a, {.rows = found.arena, .scale = -0.1, .keep = 1});
    const Activations e = model->make_activations(count, kBatch, type, Use::Evaluation);
    e.input().copy_(part_of(input));
    model->forward(weights, e);
    found.scores = e.logits().clone();
    return found;
  }

  const LayerCase& of;
  std::unique_ptr<Model> model;
  Tensor rows;   // [C, P]
  Tensor input;  // [C, B, D]
  Tensor dy;     // [C, B, K]
};

class DescribedLayers : public ::testing::TestWithParam<LayerCase> {};

TEST_P(DescribedLayers, EqualAutograd) {
  at::manual_seed(3);
  const Trial trial(GetParam());
  trial.compare({});
  trial.compare({.ragged = true});
  trial.compare({.scale = -0.1, .keep = 1});
  trial.compare({.scale = 2, .keep = 0.5, .ragged = true});
  trial.compare({.type = at::kFloat});
  trial.compare({.type = at::kFloat, .scale = -0.1, .keep = 1, .ragged = true});
}

TEST_P(DescribedLayers, GiveAClientTheSameBitsInAnyBlock) {
  at::manual_seed(4);
  const Trial trial(GetParam());
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const Trial::Outcome whole = trial.outcome(type, 0, kClients);
    EXPECT_TRUE(whole.scores.equal(whole.logits));
    for (const auto& [first, count] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {0, 1}, {kClients - 1, 1}, {1, 2}, {2, 3}}) {
      const Trial::Outcome part = trial.outcome(type, first, count);
      EXPECT_TRUE(part.logits.equal(whole.logits.narrow(0, first, count)));
      EXPECT_TRUE(part.scores.equal(whole.scores.narrow(0, first, count)));
      EXPECT_TRUE(part.arena.equal(whole.arena.narrow(0, first, count)));
    }
  }
}

TEST_P(DescribedLayers, TakeOneRowForAllClients) {
  at::manual_seed(5);
  Trial trial(GetParam());
  trial.rows = trial.rows.narrow(0, 0, 1).expand({kClients, -1});
  const Activations a =
      trial.model->make_activations(kClients, kBatch, at::kDouble, Use::Evaluation);
  a.input().copy_(trial.input);
  trial.model->forward(trial.rows, a);
  for (std::int64_t c = 0; c < kClients; ++c) {
    expect_near(a.logits()[c], trial.expected(c, kBatch).y, 1e-11, "values");
  }
}

TEST_P(DescribedLayers, AreMeasuredWithoutMemory) {
  const Trial trial(GetParam());
  const auto bytes = [&](const at::TensorOptions& options) {
    return trial.model->make_activations(kClients, kBatch, options, Use::Training).bytes();
  };
  EXPECT_EQ(bytes(at::TensorOptions(at::kDouble).device(at::kMeta)), bytes(at::kDouble));
}

INSTANTIATE_TEST_SUITE_P(Cases, DescribedLayers, ::testing::ValuesIn(testing::layer_cases()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace fedhpc
