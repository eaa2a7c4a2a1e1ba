#include "fedhpc/models/image_layers.hpp"

#include <array>

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <gtest/gtest.h>

#include "fedhpc/math/products.hpp"

// Each layer against autograd in float64, one client at a time, on random shapes.
namespace fedhpc {
namespace {

constexpr std::int64_t kClients = 2;
constexpr std::int64_t kBatch = 3;

/// A layer on its own with random weights, input and gradient of its output.
struct Trial {
  Trial(Layer& one, const ImageShape& in) : layer(one), shape(in) {
    auto fresh = std::make_shared<Layout>();
    layer.declare(*fresh);
    layout = fresh;
    rows = at::rand({kClients, layout->size()}, at::kDouble).add(0.5);
    input = at::randn({kClients, kBatch, in.values()}, at::kDouble);
    output = at::empty({kClients, kBatch, layer.output_features()}, at::kDouble);
    dy = at::randn(output.sizes(), at::kDouble);
    dx = at::full(input.sizes(), std::nan(""), at::kDouble);
    arena = at::full(rows.sizes(), std::nan(""), at::kDouble);  // what is not written shows
    for (const auto& [begin, end] : layout->ranges(Tag::Buffer)) {
      arena.narrow(1, begin, end - begin).zero_();  // and buffers have no gradient
    }
  }

  void run() {
    before = rows.clone();
    const Saved saved = layer.make_saved(kClients, kBatch, at::kDouble, Use::Training);
    const Pass pass{rows, saved, Use::Training};
    layer.forward(pass, {&input, 1}, output);
    layer.backward(pass, {&input, 1}, output, dy, {&dx, 1}, {.rows = arena, .scale = 1, .keep = 0});
  }

  Tensor field(const Tensor& row, const std::string& name) const {
    const Field& f = layout->field(name);
    return row.narrow(0, f.offset, f.size).view(f.shape);
  }

  /// `expected(images, row)` is the layer by ATen's operators.
  template <typename Expected>
  void compare(Expected&& expected) {
    run();
    for (std::int64_t c = 0; c < kClients; ++c) {
      const Tensor x = input[c].clone().requires_grad_(true);
      const Tensor row = before[c].clone().requires_grad_(true);
      const Tensor y =
          expected(x.view({kBatch, shape.channels, shape.height, shape.width}), row).flatten(1);
      y.mul(dy[c]).sum().backward();
      EXPECT_LT(output[c].sub(y).abs().max().item<double>(), 1e-11);
      EXPECT_LT(dx[c].sub(x.grad()).abs().max().item<double>(), 1e-11);
      if (row.grad().defined()) {
        EXPECT_LT(arena[c].sub(row.grad()).abs().max().item<double>(), 1e-10);
      }
    }
  }

  Layer& layer;
  ImageShape shape;
  LayoutPtr layout;
  Tensor rows;    // [C, P]
  Tensor before;  // [C, P]
  Tensor input;   // [C, B, in]
  Tensor output;  // [C, B, out]
  Tensor dy;      // [C, B, out]
  Tensor dx;      // [C, B, in]
  Tensor arena;   // [C, P]
};

TEST(Conv2d, EqualsAutograd) {
  for (const std::int64_t channels : {1, 3, 5}) {  // few values in a window, and more
    for (const Window& window : {Window{3, 1, 1}, Window{3, 2, 1}, Window{1, 2, 0}, Window{5, 1, 2},
                                 Window{3, 3, 0}, Window{7, 2, 3}}) {
      for (const Bias bias : {Bias::None, Bias::Use}) {
        const ImageShape in{channels, 9, 8};
        Conv2d layer("conv", in, 4, window, bias);
        Trial trial(layer, in);
        trial.compare([&](const Tensor& x, const Tensor& row) {
          return at::conv2d(x, trial.field(row, "conv.weight"),
                            bias == Bias::Use ? trial.field(row, "conv.bias") : Tensor(),
                            window.stride.pair(), window.padding.pair());
        });
      }
    }
  }
}

TEST(Conv2d, TakesFactorsOfItsPrecision) {
  for (const std::int64_t channels : {1, 5}) {  // unfolded, and by ATen
    for (const Precision precision : {Precision::Tf32, Precision::Bf16}) {
      const ImageShape in{channels, 9, 8};
      Conv2d layer("conv", in, 4, Window{3, 1, 1}, Bias::None);
      Layout layout;
      layer.declare(layout);
      const Tensor rows = at::randn({1, layout.size()}, at::kFloat);
      const Tensor input = at::randn({1, kBatch, in.values()}, at::kFloat);
      const Tensor output = at::empty({1, kBatch, 4 * in.places()}, at::kFloat);
      const Tensor dy = at::randn(output.sizes(), at::kFloat);
      const Tensor dx = at::empty_like(input);
      const Tensor arena = at::empty_like(rows);
      const Pass pass{rows, {}, Use::Training, {precision}};
      layer.forward(pass, {&input, 1}, output);
      layer.backward(pass, {&input, 1}, output, dy, {&dx, 1},
                     {.rows = arena, .scale = 1, .keep = 0});

      const auto exact = [&](const Tensor& factor) {
        return as_factors(factor, precision).to(at::kDouble);
      };
      const Tensor x = exact(input).view({kBatch, channels, 9, 8}).requires_grad_(true);
      const Tensor weight = exact(rows).view({4, channels, 3, 3}).requires_grad_(true);
      const Tensor y = at::conv2d(x, weight, {}, {1, 1}, {1, 1});
      y.mul(exact(dy).view(y.sizes())).sum().backward();
      EXPECT_LT(output.flatten().sub(y.flatten()).abs().max().item<double>(), 1e-4);
      EXPECT_LT(dx.flatten().sub(x.grad().flatten()).abs().max().item<double>(), 1e-4);
      EXPECT_LT(arena.flatten().sub(weight.grad().flatten()).abs().max().item<double>(), 1e-3);
    }
  }
}

TEST(BatchNorm, EqualsAutograd) {
  for (const ImageShape in : {ImageShape{3, 5, 7}, ImageShape{4, 8, 8}, ImageShape{2, 3, 2}}) {
    for (const auto then : {Then::Nothing, Then::Relu, Then::ReluMaxPool}) {
      BatchNorm layer("bn", in, then);
      Trial trial(layer, in);
      trial.rows.narrow(1, 0, 1).neg_();  // a negative scale turns the order of values around
      trial.compare([&](const Tensor& x, const Tensor& row) {
        const Tensor y =
            at::batch_norm(x, trial.field(row, "bn.weight"), trial.field(row, "bn.bias"), {}, {},
                           true, 0.1, 1e-5, false);
        if (then == Then::Nothing) return y;
        return then == Then::Relu ? at::relu(y) : at::max_pool2d(at::relu(y), {2, 2});
      });
      EXPECT_EQ(trial.arena.narrow(1, 2 * in.channels, 2 * in.channels).abs().sum().item<double>(),
                0);
    }
  }
}

TEST(BatchNorm, MovesItsBuffersAndEvaluatesByThem) {
  const ImageShape in{3, 4, 5};
  BatchNorm layer("bn", in, Then::Nothing);
  Trial trial(layer, in);
  trial.run();
  for (std::int64_t c = 0; c < kClients; ++c) {
    const Tensor x = trial.input[c].view({kBatch, 3, 4, 5});
    const Tensor mean = trial.field(trial.before[c], "bn.running_mean").clone();
    const Tensor variance = trial.field(trial.before[c], "bn.running_var").clone();
    at::batch_norm(x, {}, {}, mean, variance, true, 0.1, 1e-5, false);
    EXPECT_LT(trial.field(trial.rows[c], "bn.running_mean").sub(mean).abs().max().item<double>(),
              1e-12);
    EXPECT_LT(trial.field(trial.rows[c], "bn.running_var").sub(variance).abs().max().item<double>(),
              1e-12);
  }
  const Tensor trained = trial.rows.clone();
  layer.forward({trial.rows, {}, Use::Evaluation}, {&trial.input, 1}, trial.output);
  EXPECT_TRUE(trial.rows.equal(trained));
  for (std::int64_t c = 0; c < kClients; ++c) {
    const Tensor expected = at::batch_norm(
        trial.input[c].view({kBatch, 3, 4, 5}), trial.field(trained[c], "bn.weight"),
        trial.field(trained[c], "bn.bias"), trial.field(trained[c], "bn.running_mean"),
        trial.field(trained[c], "bn.running_var"), false, 0.1, 1e-5, false);
    EXPECT_LT(trial.output[c].sub(expected.flatten(1)).abs().max().item<double>(), 1e-12);
  }
}

TEST(BatchNorm, IsAccurateFarFromZero) {
  // Squares of values around 1000 would lose the variance in float32.
  const ImageShape in{1, 6, 6};
  BatchNorm layer("bn", in, Then::Nothing);
  Layout layout;
  layer.declare(layout);
  const Tensor rows = at::full({1, 4}, 1.0, at::kFloat);
  const Tensor input = at::randn({1, 50, 36}, at::kDouble).add(1000).to(at::kFloat);
  const Tensor output = at::empty_like(input);
  layer.forward({rows, layer.make_saved(1, 50, at::kFloat, Use::Training), Use::Training},
                {&input, 1}, output);
  const Tensor exact = input.to(at::kDouble);
  const Tensor expected = exact.sub(exact.mean()).div(exact.std(/*unbiased=*/false)).add(1);
  EXPECT_LT(output.sub(expected).abs().max().item<double>(), 2e-3);
}

TEST(MaxPool2d, EqualsAutograd) {
  for (const Window& window :
       {Window{2, 2, 0}, Window{3, 2, 1}, Window{3, 1, 0}, Window{4, 4, 0}}) {
    const ImageShape in{3, 9, 8};
    MaxPool2d layer(in, window);
    Trial trial(layer, in);
    trial.compare([&](const Tensor& x, const Tensor&) {
      return at::max_pool2d(x, window.size.pair(), window.stride.pair(), window.padding.pair());
    });
  }
}

TEST(MaxPool2d, ShowsNan) {
  const ImageShape in{1, 2, 2};
  MaxPool2d layer(in, {2, 2, 0});
  Trial trial(layer, in);
  trial.input[0][0][2] = std::nan("");
  trial.run();
  EXPECT_TRUE(trial.output[0][0].isnan().all().item<bool>());
}

TEST(AveragePool2d, EqualsAutograd) {
  const ImageShape in{3, 9, 7};
  for (const Window& window : {Window{2, 2, 0}, Window{3, 1, 0}, Window{7, 7, 0}}) {
    AveragePool2d layer(in, window);
    Trial trial(layer, in);
    trial.compare([&](const Tensor& x, const Tensor&) {
      return at::avg_pool2d(x, window.size.pair(), window.stride.pair());
    });
  }
  for (const std::array<std::int64_t, 2> size :
       {std::array<std::int64_t, 2>{1, 1}, {4, 3}, {9, 5}}) {
    AveragePool2d layer(in, size[0], size[1]);
    Trial trial(layer, in);
    trial.compare([&](const Tensor& x, const Tensor&) { return at::adaptive_avg_pool2d(x, size); });
  }
}

}  // namespace
}  // namespace fedhpc
