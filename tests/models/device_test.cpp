#include "fixtures/device.hpp"

#include <array>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "fedhpc/math/device_kernels.hpp"
#include "fedhpc/math/products.hpp"
#include "fedhpc/models/image_layers.hpp"
#include "fedhpc/models/model.hpp"
#include "fedhpc/models/row_measures.hpp"
#include "fedhpc/models/sample_norm.hpp"
#include "fedhpc/models/sequence_layers.hpp"

#include "fixtures/layer_cases.hpp"
#include "reference/nets.hpp"

// Layers, models and rows on a device against the same on the host.
namespace fedhpc {
namespace {

constexpr std::int64_t kClients = 3;
constexpr std::int64_t kBatch = 4;
constexpr double kUntouched = 1234.56789;
constexpr std::array<std::int64_t, kClients> kIds{4, 0, 9};

/// Makes every convolution take one way.
class ForcedWay {
 public:
  explicit ForcedWay(const char* way) { setenv("FEDHPC_CONVOLUTION", way, 1); }
  ~ForcedWay() { unsetenv("FEDHPC_CONVOLUTION"); }
  ForcedWay(const ForcedWay&) = delete;
  ForcedWay& operator=(const ForcedWay&) = delete;
};

const std::vector<const char*> kWays{"unfolded", "loop", "loop_channels_last", "grouped",
                                     "grouped_channels_last"};

bool is_real() { return std::getenv("FEDHPC_GPU_MODULE") == nullptr; }

enum class SinkKind { Arena, Descent };

/// How a model is run.
struct Setting {
  at::ScalarType type = at::kDouble;
  Use use = Use::Training;
  SinkKind sink = SinkKind::Arena;
  Columns columns{};
  Arithmetic arithmetic{};
  bool ragged = false;  ///< clients 1 and 2 with 3 samples of each
  bool shared = false;  ///< one row serves all clients
};

/// Numbers that a run starts from.
struct Start {
  Tensor weights;   // [C, P]
  Tensor input;     // [C, B, D]
  Tensor gradient;  // [C, B, K]
};

struct Outcome {
  Tensor logits;
  Tensor input_gradient;
  Tensor sink;
  Tensor weights;
};

Start start_of(const Model& model) {
  Start start;
  start.weights = at::empty({kClients, model.layout()->size()}, at::kDouble);
  for (const Field& field : model.layout()->fields()) {
    // Of a size that keeps a deep network's values near 1.
    const double scale = field.shape.size() > 1 ? std::sqrt(2.0 / double(field.fan_in)) : 0.5;
    Tensor part = start.weights.narrow(1, field.offset, field.size);
    part.copy_(at::randn({kClients, field.size}, at::kDouble).mul(scale));
    if (field.initial == Initial::One) part.copy_(part.abs().add(0.5));
  }
  start.input = at::randn({kClients, kBatch, model.features()}, at::kDouble);
  start.gradient = at::randn({kClients, kBatch, model.classes()}, at::kDouble);
  return start;
}

Outcome run(const Model& model, const Start& start, const Setting& setting, at::Device device) {
  const auto options = at::TensorOptions().dtype(setting.type).device(device);
  const std::int64_t first = setting.ragged ? 1 : 0;
  const std::int64_t count = setting.ragged ? 2 : kClients;
  const std::int64_t batch = setting.ragged ? 3 : kBatch;
  const auto part_of = [&](const Tensor& stack) {
    return stack.narrow(0, first, count).narrow(1, 0, batch).to(setting.type).contiguous();
  };
  Tensor weights = start.weights.to(setting.type).clone().to(device);
  if (setting.shared) weights = weights.narrow(0, 0, 1).expand({kClients, -1});

  Activations whole =
      model.make_activations(kClients, kBatch, options, setting.use, setting.arithmetic);
  whole.draws = {.seed = 1, .clients = kIds};
  const Activations part = whole.narrow(first, count, batch);
  part.input().copy_(part_of(start.input).to(device));
  const Tensor rows = weights.narrow(0, first, count);
  model.forward(rows, part);
  Outcome outcome{part.logits().cpu().clone(), {}, {}, {}};
  if (setting.use == Use::Training) {
    part.logit_gradient().copy_(part_of(start.gradient).to(device));
    const Tensor arena =
        at::full({kClients, model.layout()->size()}, kUntouched, at::kDouble).to(options);
    GradientSink sink{.rows = arena.narrow(0, first, count), .columns = setting.columns};
    if (setting.sink == SinkKind::Descent) {
      sink = {.rows = rows, .scale = -0.1, .keep = 1, .columns = setting.columns};
    }
    model.backward(rows, part, sink);
    if (model.layout()->contains("probe") && setting.columns.all()) {
      outcome.input_gradient = part.gradients[1].cpu().clone();
    }
    outcome.sink = arena.cpu();
  }
  outcome.weights = weights.cpu();
  return outcome;
}

void expect_near(const Tensor& actual, const Tensor& expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(actual.defined(), expected.defined());
  if (!expected.defined()) return;
  ASSERT_EQ(actual.sizes(), expected.sizes());
  const double error = actual.sub(expected).to(at::kDouble).norm().item<double>();
  const double size = expected.to(at::kDouble).norm().item<double>();
  EXPECT_LE(error, tolerance * size) << what;
}

double rounding(const Setting& setting) { return setting.type == at::kDouble ? 1e-12 : 1e-5; }

void expect_equal_runs(const Model& model, const Start& start, const Setting& setting,
                       std::optional<double> tolerance = std::nullopt) {
  const Outcome expected = run(model, start, setting, at::kCPU);
  const Outcome actual = run(model, start, setting, at::kCUDA);
  const double within = tolerance.value_or(rounding(setting));
  expect_near(actual.logits, expected.logits, within, "values");
  expect_near(actual.input_gradient, expected.input_gradient, within, "gradient of the input");
  expect_near(actual.sink, expected.sink, within, "arena");
  expect_near(actual.weights, expected.weights, within, "weights and buffers");
  if (!expected.sink.defined()) return;
  EXPECT_TRUE(actual.sink.eq(kUntouched).equal(expected.sink.eq(kUntouched)));
}

std::vector<Setting> settings() {
  const Columns head{.with = Tag::Head};
  const Columns norm{.with = Tag::Norm};
  const Columns rest{.without = Tag::Uncompressed};
  return {{},
          {.sink = SinkKind::Descent},
          {.type = at::kFloat},
          {.type = at::kFloat, .sink = SinkKind::Descent, .ragged = true},
          {.sink = SinkKind::Descent, .ragged = true},
          {.columns = head, .ragged = true},
          {.columns = norm},
          {.columns = rest},
          {.use = Use::Evaluation},
          {.use = Use::Evaluation, .shared = true},
          {.type = at::kFloat, .use = Use::Evaluation, .ragged = true, .shared = true}};
}

std::string title(const Setting& setting) {
  std::string text = setting.type == at::kDouble ? "float64" : "float32";
  if (setting.use == Use::Evaluation) text += " evaluation";
  if (setting.sink == SinkKind::Descent) text += " descent";
  if (!setting.columns.all()) text += " some columns";
  if (setting.ragged) text += " ragged";
  if (setting.shared) text += " one row";
  return text;
}

/// The input, with a parameter that does nothing, so that the layer after it needs a gradient of
/// its input.
class Probe final : public Layer {
 public:
  explicit Probe(std::int64_t features) : features_(features) {}
  std::int64_t output_features() const override { return features_; }
  void declare(Layout& layout) override { layout.add("probe", {1}, 1, kWeightTags); }
  void forward(const Pass&, Stacks inputs, const Tensor& output) const override {
    output.copy_(inputs[0]);
  }
  void backward(const Pass&, Stacks, const Tensor&, const Tensor&, Stacks,
                const GradientSink&) const override {}

 private:
  std::int64_t features_;
};

template <typename... Layers>
Model model_of(std::int64_t features, Layers... layers) {
  Graph graph(features);
  graph.add(std::make_unique<Probe>(features));
  (graph.add(std::move(layers)), ...);
  return Model(std::move(graph));
}

void expect_equal_in_all_settings(const Model& model, const Start& start) {
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(title(setting));
    expect_equal_runs(model, start, setting);
  }
}

void expect_equal_in_all_settings(const Model& model) {
  expect_equal_in_all_settings(model, start_of(model));
}

using DeviceLayers = testing::DeviceTest;

TEST_F(DeviceLayers, LinearAndReluAreAsOnTheHost) {
  for (const Bias bias : {Bias::Use, Bias::None}) {
    expect_equal_in_all_settings(model_of(
        9, std::make_unique<Linear>("fc1", 9, 6, Tag::None, bias), std::make_unique<Relu>(6),
        std::make_unique<Linear>("fc2", 6, 5, Tag::Head, bias), std::make_unique<Relu>(5)));
  }
}

TEST_F(DeviceLayers, EveryWayOfAConvolutionIsAsOnTheHost) {
  for (const char* way : kWays) {
    const ForcedWay forced(way);
    const bool grouped = std::string(way).rfind("grouped", 0) == 0;
    for (const std::int64_t channels : {1, 4}) {
      // For one channel in a group LibTorch has kernels on GPUs alone.
      if (grouped && channels == 1 && !is_real()) continue;
      for (const Window& window :
           {Window{3, 1, 1}, Window{3, 2, 1}, Window{1, 2, 0}, Window{1, 1, 0}, Window{5, 3, 2}}) {
        for (const Bias bias : {Bias::None, Bias::Use}) {
          SCOPED_TRACE(concat(way, ' ', channels, " channels, window ", window.size.width,
                              " stride ", window.stride.width));
          const ImageShape in{channels, 7, 6};
          expect_equal_in_all_settings(
              model_of(in.values(), std::make_unique<Conv2d>("conv", in, 3, window, bias)));
        }
      }
    }
  }
}

TEST_F(DeviceLayers, EveryWayTakesAnyWindowAndGroups) {
  struct Case {
    Window window;
    std::int64_t groups;
  };
  for (const char* way : kWays) {
    const ForcedWay forced(way);
    for (const Case& of : {Case{{{2, 3}, {1, 2}, {1, 0}, {2, 1}}, 1}, Case{{3, 2, 1, {1, 2}}, 2},
                           Case{{3, 1, 1}, 4}}) {
      const bool depthwise = of.groups == 4;
      // For one channel in a group LibTorch has kernels on GPUs alone.
      if (depthwise && std::string(way) != "unfolded" && !is_real()) continue;
      SCOPED_TRACE(concat(way, ", groups ", of.groups));
      const ImageShape in{4, 7, 6};
      for (const Bias bias : {Bias::None, Bias::Use}) {
        expect_equal_in_all_settings(model_of(
            in.values(),
            std::make_unique<Conv2d>("conv", in, 8, of.window, bias, Tag::None, of.groups)));
      }
    }
  }
}

TEST_F(DeviceLayers, EveryWayTakesImagesByChannels) {
  const ImageShape in{4, 7, 6};
  const ImageShape less{4, 4, 3};
  for (const char* way : kWays) {
    const ForcedWay forced(way);
    for (const std::int64_t groups : {1, 2}) {
      SCOPED_TRACE(concat(way, ", groups ", groups));
      const auto convolution = [groups](const char* name, const ImageShape& of, Window window) {
        return std::make_unique<Conv2d>(name, of, 4, window, Bias::Use, Tag::None, groups);
      };
      expect_equal_in_all_settings(
          model_of(in.values(), convolution("a", in, {3, 1, 1}), std::make_unique<Relu>(168),
                   convolution("b", in, {3, 2, 1}), std::make_unique<Relu>(48),
                   convolution("c", less, {1, 1, 0})));
    }
  }
}

TEST_F(DeviceLayers, SampleNormIsAsOnTheHost) {
  using Then = SampleNorm::Then;
  for (const Then then : {Then::Nothing, Then::Relu}) {
    for (const std::size_t parameters : {0, 1, 2}) {
      for (const NormedParts parts : {NormedParts{2, 3, 35}, {3, 9, 1}, {1, 6, 8}}) {
        for (const bool shared : {false, true}) {
          const Shape shape{shared ? parts.channels : parts.groups * parts.channels};
          expect_equal_in_all_settings(
              model_of(parts.groups * parts.values(),
                       std::make_unique<SampleNorm>("norm", parts, shape, parameters, 1e-5, then)));
        }
      }
    }
  }
}

TEST_F(DeviceLayers, BatchNormIsAsOnTheHost) {
  using Then = BatchNorm::Then;
  for (const ImageShape in : {ImageShape{3, 5, 7}, ImageShape{2, 4, 8}}) {
    for (const Then then : {Then::Nothing, Then::Relu, Then::ReluMaxPool}) {
      expect_equal_in_all_settings(
          model_of(in.values(), std::make_unique<BatchNorm>("bn", in, then)));
    }
  }
}

TEST_F(DeviceLayers, PoolingIsAsOnTheHost) {
  const ImageShape in{3, 9, 7};
  for (const Window& window :
       {Window{2, 2, 0}, Window{3, 2, 1}, Window{3, 1, 0}, Window{{3, 2}, {2, 1}, {1, 0}, {1, 2}},
        Window{{2, 3}, {3, 4}, {1, 1}, 1, true}}) {
    expect_equal_in_all_settings(model_of(in.values(), std::make_unique<MaxPool2d>(in, window)));
  }
  expect_equal_in_all_settings(
      model_of(in.values(), std::make_unique<AveragePool2d>(in, Window{3, 2, 0})));
  for (const bool count_padding : {false, true}) {
    const Window window{{2, 3}, {3, 4}, {1, 1}, 1, true};
    expect_equal_in_all_settings(
        model_of(in.values(), std::make_unique<AveragePool2d>(in, window, count_padding)));
  }
  expect_equal_in_all_settings(model_of(in.values(), std::make_unique<MaxPool2d>(in, 4, 3)));
  expect_equal_in_all_settings(model_of(in.values(), std::make_unique<AveragePool2d>(in, 4, 3)));
}

TEST_F(DeviceLayers, ResidualSumsAreAsOnTheHost) {
  const ImageShape in{3, 5, 4};
  for (const bool identity : {true, false}) {
    Graph graph(in.values());
    const std::size_t first =
        graph.add(std::make_unique<Conv2d>("first", in, 3, Window{3, 1, 1}, Bias::Use));
    const std::size_t body =
        graph.add(std::make_unique<Conv2d>("a", in, 3, Window{3, 1, 1}, Bias::Use));
    const std::size_t other =
        identity
            ? first
            : graph.add(std::make_unique<Conv2d>("s", in, 3, Window{1, 1, 0}, Bias::None), {first});
    graph.add(std::make_unique<Sum>(in.values()), {body, other});
    graph.add(std::make_unique<Relu>(in.values()));
    expect_equal_in_all_settings(Model(std::move(graph)));
  }
}

TEST_F(DeviceLayers, ColumnsThatAreKeptAreThoseOfTheirImages) {
  const ForcedWay forced("unfolded");
  const ImageShape in{2, 5, 4};
  const Model model =
      model_of(in.values(), std::make_unique<Conv2d>("conv", in, 3, Window{3, 1, 1}, Bias::None));
  const Start start = start_of(model);
  const auto gradients = [&](at::Device device) {
    const Tensor weights = start.weights.to(device);
    const Tensor arena = at::zeros_like(weights);
    const Activations whole =
        model.make_activations(kClients, kBatch, weights.options(), Use::Training);
    whole.input().copy_(start.input.to(device));
    whole.logit_gradient().copy_(start.gradient.to(device));
    // All parts go forward before one goes back.
    for (std::int64_t c = 0; c < kClients; ++c) {
      model.forward(weights.narrow(0, c, 1), whole.narrow(c, 1, kBatch));
    }
    for (std::int64_t c = 0; c < kClients; ++c) {
      model.backward(weights.narrow(0, c, 1), whole.narrow(c, 1, kBatch),
                     {.rows = arena.narrow(0, c, 1)});
    }
    return arena.cpu();
  };
  expect_near(gradients(at::kCUDA), gradients(at::kCPU), 1e-12, "gradients");
}

/// Whether the values of every node from the second on lie by channels.
std::vector<bool> by_channels(const Model& model, at::Device device, Use use) {
  const Activations all = model.make_activations(
      kClients, kBatch, at::TensorOptions().dtype(at::kFloat).device(device), use);
  std::vector<bool> lie;
  for (std::size_t n = 1; n < all.values.size(); ++n) {
    lie.push_back(all.values[n].dim() == 4);
    if (use == Use::Training) {
      EXPECT_EQ(all.gradients[n].strides(), all.values[n].strides());
    }
  }
  return lie;
}

TEST_F(DeviceLayers, ImagesLieByChannelsBetweenLayersThatTakeThemSo) {
  const ImageShape in{3, 8, 8};
  const ImageShape half{3, 4, 4};
  const auto convolution = [](const char* name, const ImageShape& of) {
    return std::make_unique<Conv2d>(name, of, 3, Window{3, 1, 1}, Bias::Use);
  };
  Graph graph(in.values());
  graph.add(convolution("a", in));
  const std::size_t norm =
      graph.add(std::make_unique<BatchNorm>("bn", in, BatchNorm::Then::ReluMaxPool));
  graph.add(convolution("b", half));
  graph.add(std::make_unique<Sum>(half.values()), {graph.last(), norm});
  graph.add(std::make_unique<Relu>(half.values()));
  graph.add(std::make_unique<MaxPool2d>(half, Window{2, 2, 0}));
  graph.add(std::make_unique<Linear>("middle", 12, 48, Tag::None));
  graph.add(std::make_unique<Relu>(48));
  graph.add(convolution("c", half));
  graph.add(std::make_unique<Relu>(48));
  graph.add(std::make_unique<Linear>("fc", 48, 3, Tag::Head));
  const Model model(std::move(graph));
  const std::vector<bool> lie{true,  true,  true,  true,  true, false,
                              false, false, false, false, false};
  for (const Use use : {Use::Training, Use::Evaluation}) {
    EXPECT_EQ(by_channels(model, at::kCUDA, use), lie);
    EXPECT_EQ(by_channels(model, at::kCPU, use), std::vector<bool>(lie.size(), false));
  }
  const Start start = start_of(model);
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(title(setting));
    // Of batch norm over few values float32's rounding makes much.
    if (setting.type == at::kDouble) expect_equal_runs(model, start, setting, 1e-9);
  }
}

TEST_F(DeviceLayers, RecurrentLayersAreAsOnTheHost) {
  for (const Cell cell : {Cell::Lstm, Cell::Gru}) {
    for (const Direction direction : {Direction::Forward, Direction::Reverse}) {
      for (const Bias bias : {Bias::Use, Bias::None}) {
        expect_equal_in_all_settings(model_of(
            5 * 3,
            std::make_unique<Recurrent>("rnn1", cell, Recurrent::Sizes{5, 3, 6}, direction, bias),
            std::make_unique<Recurrent>("rnn2", cell, Recurrent::Sizes{5, 6, 4}, direction, bias),
            std::make_unique<Linear>("fc", 20, 3, Tag::Head)));
      }
    }
  }
}

TEST_F(DeviceLayers, AttentionIsAsOnTheHost) {
  using Mask = Attention::Mask;
  constexpr Attention::Sizes kSizes{.heads = 2, .queries = 4, .keys = 5, .width = 3, .values = 2};
  for (const bool causal : {false, true}) {
    for (const Mask mask : {Mask::None, Mask::OfAllHeads, Mask::OfEachHead}) {
      for (const double dropout : {0.0, 0.4}) {
        SCOPED_TRACE(concat("causal ", causal, " mask ", int(mask), " dropout ", dropout));
        Graph graph(9);
        const std::size_t probe = graph.add(std::make_unique<Probe>(9));
        std::vector<std::size_t> inputs;
        const auto input = [&](const char* name, std::int64_t width) {
          inputs.push_back(graph.add(std::make_unique<Linear>(name, 9, width, Tag::None), {probe}));
        };
        input("q", 2 * 4 * 3);
        input("k", 2 * 5 * 3);
        input("v", 2 * 5 * 2);
        if (mask != Mask::None) input("mask", (mask == Mask::OfAllHeads ? 1 : 2) * 4 * 5);
        graph.add(std::make_unique<Attention>(
                      kSizes,
                      Attention::Settings{
                          .scale = 0.6, .causal = causal, .mask = mask, .dropout = dropout}),
                  inputs);
        graph.add(std::make_unique<Linear>("fc", 2 * 4 * 2, 3, Tag::Head));
        expect_equal_in_all_settings(Model(std::move(graph)));
      }
    }
  }
}

TEST_F(DeviceLayers, DescribedOnesAreAsOnTheHost) {
  std::vector<testing::LayerCase> cases = testing::layer_cases();
  for (const char* line : {"dropout p=0.3 inputs=1", "dropout p=0.3 channels=1 inputs=1"}) {
    cases.push_back(testing::after_probe(line, "3,4", {line}, {}));
  }
  for (const testing::LayerCase& one : cases) {
    SCOPED_TRACE(one.name);
    const auto model = one.model();
    Start start = start_of(*model);
    start.input = one.input(kClients, kBatch);
    expect_equal_in_all_settings(*model, start);
  }
}

TEST_F(DeviceLayers, WhatNamesNoRowOfATableBecomesNaN) {
  const auto model =
      testing::LayerCase{
          .name = "embedding",
          .lines = {"input shape=4", "embedding rows=3 columns=2 inputs=0 parameters=table"}}
          .model();
  const auto options = at::TensorOptions().dtype(at::kFloat).device(at::kCUDA);
  const Activations a = model->make_activations(1, 1, options, Use::Evaluation);
  a.input().copy_(at::tensor({2.0F, 3.0F, -1.0F, 0.5F}).view({1, 1, 4}));
  model->forward(at::ones({1, 6}, options), a);
  const Tensor wrong = a.logits().cpu().isnan().view({4, 2});
  EXPECT_TRUE(wrong.equal(at::tensor({0, 1, 1, 1}).to(at::kBool).view({4, 1}).expand({4, 2})));
}

TEST_F(DeviceLayers, FactorsHaveThePrecisionOfTheHost) {
  const ImageShape in{4, 7, 6};
  const Model linear = model_of(40, std::make_unique<Linear>("fc", 40, 30, Tag::None));
  const Model convolution =
      model_of(in.values(), std::make_unique<Conv2d>("conv", in, 5, Window{3, 1, 1}, Bias::Use));
  const Start of_linear = start_of(linear);
  const Start of_convolution = start_of(convolution);
  for (const Precision precision : {Precision::Tf32, Precision::Bf16}) {
    // A GPU takes TF32 by other rounding; LibTorch's convolutions on a host take none.
    const double coarse = precision == Precision::Tf32 ? 2e-3 : 1e-2;
    const Setting setting{.type = at::kFloat, .arithmetic = {precision}};
    const double exact = is_real() ? coarse : 1e-5;
    device_kernels<MathKernels>().use_precision(precision);
    expect_equal_runs(linear, of_linear, setting, exact);
    for (const char* way : kWays) {
      const ForcedWay forced(way);
      SCOPED_TRACE(way);
      const bool own = std::string(way) == "unfolded" || precision == Precision::Bf16;
      expect_equal_runs(convolution, of_convolution, setting, own ? exact : coarse);
    }
    device_kernels<MathKernels>().use_precision(Precision::Fp32);
    // And it is none of full precision.
    const Setting full{.type = at::kFloat};
    const Tensor logits = run(linear, of_linear, full, at::kCPU).logits;
    const Tensor shorter = run(linear, of_linear, setting, at::kCPU).logits;
    EXPECT_GT(logits.sub(shorter).norm().item<double>(), 1e-5 * logits.norm().item<double>());
  }
}

TEST_F(DeviceLayers, ConvolutionsOfAShapeAreTriedOnce) {
  const ImageShape in{2, 11, 6};
  const Model model =
      model_of(in.values(), std::make_unique<Conv2d>("conv", in, 3, Window{3, 1, 1}, Bias::Use));
  const Start start = start_of(model);
  const auto waits_of = [&](const Setting& setting) {
    const std::int64_t before = testing::waits_for_device();
    expect_equal_runs(model, start, setting);
    return testing::waits_for_device() - before;
  };
  const Setting setting{.sink = SinkKind::Descent};
  Setting in_order = setting;
  in_order.arithmetic.summation = Summation::Reproducible;
  const std::int64_t untried = waits_of(in_order);  // copies of this test alone
  const std::int64_t first = waits_of(setting);
  EXPECT_TRUE(is_real() || first > untried) << first;
  EXPECT_EQ(waits_of(setting), untried);
}

TEST_F(DeviceLayers, PassesCanBeCaptured) {
  const ImageShape in{3, 8, 8};
  const Model model =
      model_of(in.values(), std::make_unique<Conv2d>("conv", in, 4, Window{3, 1, 1}, Bias::Use),
               std::make_unique<BatchNorm>("bn", ImageShape{4, 8, 8}, BatchNorm::Then::Relu),
               std::make_unique<MaxPool2d>(ImageShape{4, 8, 8}, Window{2, 2, 0}),
               std::make_unique<SampleNorm>("gn", NormedParts{2, 2, 16}, Shape{4}, 2, 1e-5,
                                            SampleNorm::Then::Relu),
               std::make_unique<AveragePool2d>(ImageShape{4, 4, 4}, 1, 1),
               std::make_unique<Linear>("fc", 4, 3, Tag::Head));
  const Start start = start_of(model);
  const auto expect_same = [&](const char* way, at::ScalarType type) {
    SCOPED_TRACE(way);
    const ForcedWay forced(way);
    const auto descend = [&](at::Device device, bool captured) {
      const auto options = at::TensorOptions().dtype(type).device(device);
      const Tensor weights = start.weights.to(type).clone().to(device);
      const Activations activations =
          model.make_activations(kClients, kBatch, options, Use::Training);
      activations.input().copy_(start.input.to(options));
      const Tensor gradient = start.gradient.to(options);
      const auto step = [&] {
        model.forward(weights, activations);
        activations.logit_gradient().copy_(gradient);
        model.backward(weights, activations, {.rows = weights, .scale = -0.1, .keep = 1});
      };
      step();
      if (captured) {
        const auto graph = device_kernels().capture(step);
        for (int i = 0; i < 3; ++i) graph->replay();
        return weights.cpu();
      }
      for (int i = 0; i < 3; ++i) step();
      return weights.cpu();
    };
    expect_near(descend(at::kCUDA, true), descend(at::kCPU, false),
                type == at::kDouble ? 1e-11 : 1e-4, "after four steps");
  };
  for (const char* way : kWays) {
    expect_same(way, at::kDouble);
    expect_same(way, at::kFloat);
  }
}

class DeviceModels : public testing::DeviceTest,
                     public ::testing::WithParamInterface<std::string> {};

std::vector<std::int64_t> samples_for(const std::string& name) {
  if (name == "mlr" || name == "mlr_sigmoid" || name == "dnn") return {1, 2, 4};
  if (name == "cnn2") return {2, 9, 8};
  if (name == "cnn4" || name == "cnn8") return {2, 16, 17};
  if (name == "resnet9" || name == "resnet18") return {2, 8, 8};
  if (name == "lstm_leaf" || name == "transformer") return {6};
  return {2, 32, 32};
}

TEST_P(DeviceModels, AreAsOnTheHost) {
  ModelOptions options;
  options.name = GetParam();
  options.hidden = {6, 5};
  // At least two channels: for one in a group LibTorch has kernels on GPUs alone.
  options.width = options.name == "cnn2" ? 0.25 : options.name == "vgg_sfedhp" ? 0.125 : 0.0625;
  options.embedding = 8;
  options.units = 5;
  options.feed_forward = 9;
  const auto shape = samples_for(options.name);
  for (const NormChoice norm : {NormChoice::Auto, NormChoice::None, NormChoice::Group}) {
    options.norm = norm;
    if (norm == NormChoice::Group) options.width *= 2;  // two groups of each number of channels
    options.bias = norm == NormChoice::None ? BiasChoice::True : BiasChoice::Auto;
    if (shape.back() < 8 && norm != NormChoice::Auto) continue;
    const auto model =
        make_model(options, shape, {4, options.name == "transformer" ? shape[0] : 1});
    Start start = start_of(*model);
    if (shape.size() == 1) start.input = at::randint(4, start.input.sizes(), at::kDouble);
    const auto expect = [&](const char* way, const Setting& setting) {
      SCOPED_TRACE(concat(way, ' ', title(setting)));
      const ForcedWay forced(way);
      expect_equal_runs(*model, start, setting, setting.type == at::kDouble ? 1e-9 : 1e-4);
    };
    for (const Setting& setting : settings()) {
      // Batch norm over few values makes much of float32's rounding: layers alone are compared.
      if (setting.type == at::kDouble || setting.use == Use::Evaluation)
        expect("unfolded", setting);
    }
    for (const char* way : {"loop", "grouped"}) expect(way, {.sink = SinkKind::Descent});
    if (norm == NormChoice::Auto) expect("", {.sink = SinkKind::Descent});  // as measured
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, DeviceModels,
                         ::testing::ValuesIn(testing::families_with_reference()),
                         [](const auto& one) { return one.param; });

class DeviceRows : public testing::DeviceTest {
 protected:
  DeviceRows() {
    auto layout = std::make_shared<Layout>();
    layout->add("conv.weight", {2, 3}, 3, Tag::Trainable);
    layout->add("bn.weight", {2}, 2, Tag::Trainable | Tag::Norm | Tag::Uncompressed);
    layout->add("bn.running_mean", {2}, 2, Tag::Buffer | Tag::Uncompressed);
    layout->add("fc.weight", {1, 3}, 3, Tag::Trainable | Tag::Head);
    layout_ = layout;
  }

  Rows draw(std::int64_t count, at::ScalarType type) const {
    return {at::randn({count, layout_->size()}, type), layout_};
  }
  static Rows there(const Rows& rows) { return {rows.values.clone().to(at::kCUDA), rows.layout}; }

  LayoutPtr layout_;
};

TEST_F(DeviceRows, AreAddedAsOnTheHost) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const double within = type == at::kDouble ? 1e-15 : 1e-6;
    const Rows a = draw(3, type);
    const Rows b = draw(3, type);
    const Rows c = draw(3, type);
    const auto expect = [&](auto&& work) {
      const Rows here = a.clone();
      const Rows moved = there(a);
      work(here, b, c);
      work(moved, there(b), there(c));
      expect_near(moved.values.cpu(), here.values, within, "rows");
    };
    for (const Tag tag : {Tag::Trainable, Tag::Buffer, Tag::Norm}) {
      expect([&](const Rows& to, const Rows& x, const Rows&) {
        add_columns_(to.values, x.values, 0.3, *layout_, tag);
      });
      expect([&](const Rows& to, const Rows& x, const Rows& y) {
        add_difference_(to.values, x.values, y.values, -0.7, *layout_, tag);
      });
      expect([&](const Rows& to, const Rows&, const Rows&) { scale_columns_(to, 0.4, tag); });
      expect([&](const Rows& to, const Rows& x, const Rows&) { copy_columns_(to, x, tag); });
    }
    expect([&](const Rows& to, const Rows& x, const Rows&) {
      add_columns_(to.values, x.values.narrow(0, 1, 1).expand({3, -1}), 0.3, *layout_,
                   Tag::Trainable);
    });
    expect([&](const Rows& to, const Rows& x, const Rows&) { approach_(to, x, 0.25); });
    expect([&](const Rows& to, const Rows& x, const Rows& y) {
      to.values.copy_((2.0 * (x - y) + y).values);
    });
  }
}

TEST_F(DeviceRows, PartsAreTakenPutAndAdded) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const Rows from = draw(3, type);
    const RowNumbers fa(std::vector<double>{0.25, -1, 0});
    const RowNumbers fb(std::vector<double>{-2, 0.5, 0});
    const RowNumbers none(std::vector<double>{0, 0, 0});
    for (const Columns& columns : {Columns{.with = Tag::Trainable}, Columns{.with = Tag::Head},
                                   Columns{.with = Tag::Buffer}, Columns{}}) {
      const RowPart part(layout_, columns);
      const Rows a{at::randn({3, part.layout()->size()}, type), part.layout()};
      const Rows b{at::randn({3, part.layout()->size()}, type), part.layout()};
      const Rows to = draw(3, type);
      const Rows moved = there(to);
      part.add_two(to, from, fa, a, fb, b);
      part.add_two(moved, there(from), fa, there(a), fb, there(b));
      expect_near(moved.values.cpu(), to.values, type == at::kDouble ? 1e-15 : 1e-6, "sum");
      part.add_two(moved, moved, none, there(a), none, there(b));  // in place
      expect_near(moved.values.cpu(), to.values, 1e-6, "the same rows");
      part.put_(moved, there(a));
      EXPECT_TRUE(part.of(moved).values.cpu().equal(a.values));
    }
  }
}

TEST_F(DeviceRows, AreMeasuredAsOnTheHost) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const Rows rows = draw(3, type);
    const Rows other = draw(3, type);
    rows.values.masked_fill_(rows.values.abs().lt(0.2), 0);
    rows.values[1][0] = std::nan("");
    const Rows moved = there(rows);
    EXPECT_EQ(count_nonzero(moved), count_nonzero(rows));
    EXPECT_EQ(densities(moved), densities(rows));
    zero_small_(rows, 0.5);
    zero_small_(moved, 0.5);
    EXPECT_EQ(count_nonzero(moved), count_nonzero(rows));
    EXPECT_TRUE(
        moved.values.cpu().eq(rows.values).logical_or(rows.values.isnan()).all().item<bool>());
    EXPECT_EQ(count_plateaus(moved), count_plateaus(rows));
    const std::vector<double> expected = squared_lengths(other).values();
    const std::vector<double> actual = squared_lengths(there(other)).values();
    for (std::size_t c = 0; c < expected.size(); ++c) {
      EXPECT_NEAR(actual[c], expected[c], 1e-14 * expected[c]);
    }
    EXPECT_TRUE(squared_lengths({moved.values.narrow(0, 0, 0), layout_}).values().empty());
    const Rows a = draw(3, type);
    const Rows b = draw(3, type);
    for (const Rows& with : {b, b.narrow(1)}) {
      const RowProducts here = inner_products(a, with);
      const RowProducts device = inner_products(there(a), there(with));
      for (std::size_t c = 0; c < 3; ++c) {
        EXPECT_NEAR(device.aa.values()[c], here.aa.values()[c], 1e-14 * here.aa.values()[c]);
        EXPECT_NEAR(device.ab.values()[c], here.ab.values()[c], 1e-14 * here.aa.values()[c]);
      }
    }
    const ColumnRanges ranges{{0, 2}, {5, 9}};
    const Tensor some = inner_products(a, b, ranges);
    EXPECT_LT((inner_products(there(a), there(b), ranges) - some).abs().max().item<double>(),
              1e-13);
    EXPECT_TRUE(float64_values(there(a)).equal(float64_values(a)));
  }
}

TEST_F(DeviceRows, AreMovedByNumbersOfRowsAsOnTheHost) {
  const std::vector<std::int64_t> neighbours{1, 2};
  const std::vector<std::int64_t> apart{2, 0};
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const double within = type == at::kDouble ? 1e-14 : 1e-6;
    const Rows a = draw(3, type);
    const Rows b = draw(3, type);
    const auto expect = [&](auto&& work) {
      const Rows here = a.clone();
      const Rows moved = there(a);
      const Rows other = there(b);
      const std::int64_t before = testing::waits_for_device();
      work(moved, other);
      EXPECT_EQ(testing::waits_for_device(), before);
      work(here, b);
      expect_near(moved.values.cpu(), here.values, within, "rows");
    };
    expect([&](const Rows& rows, const Rows& other) {
      scale_(rows, at_most(2 / sqrt(squared_lengths(other)), 0.7));
    });
    expect([&](const Rows& rows, const Rows& other) {
      const RowProducts of = inner_products(other, rows);
      const RowNumbers h = where_positive(of.ab, 0.15 * (1 + of.aa) / of.ab);
      add_columns_(rows, h, other, Tag::Trainable);
    });
    expect([&](const Rows& rows, const Rows& other) {
      add_difference_(rows, RowNumbers(std::vector<double>{0.5, 0, -3}), other, rows.clone(),
                      Tag::Trainable);
    });
    for (const std::vector<std::int64_t>& places : {neighbours, apart}) {
      expect([&](const Rows& rows, const Rows& other) {
        const Rows some = rows.at(places);
        some.values.add_(1);
        rows.put_(places, some);
        other.put_(places, rows.at(places));
        rows.values.add_(other.values);
      });
    }
    // A row of factor 0 stays, whatever is added.
    const Rows moved = there(a);
    const Rows wild = there(b);
    wild.values.narrow(0, 1, 1).fill_(std::nan(""));
    add_columns_(moved, RowNumbers(std::vector<double>{1, 0, 2}), wild, Tag::Trainable);
    EXPECT_TRUE(moved.values.cpu()[1].equal(a.values[1]));
  }
}

using DeviceProducts = testing::DeviceTest;

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
          const double coarse = precision == Precision::Fp32 || !is_real() ? 1e-6 : 1e-2;
          expect_near(moved.cpu(), result, type == at::kDouble ? 1e-14 : coarse, "product");
        }
      }
    }
  }
}

}  // namespace
}  // namespace fedhpc
