#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "fedhpc/models/description.hpp"
#include "fedhpc/models/sample_norm.hpp"

// Layers made from lines of a model file against ATen's operators and autograd, one client at a
// time: windows of all shapes, groups, norms.
namespace fedhpc {
namespace {

constexpr std::int64_t kClients = 3;
constexpr std::int64_t kBatch = 4;
constexpr double kUntouched = 1234.5;

/// How a layer is run.
struct Setting {
  std::string title;
  at::ScalarType type = at::kDouble;
  bool ragged = false;  // clients 1 and 2 with 3 samples of each
  double scale = 1;
  double keep = 0;
};

std::vector<Setting> settings() {
  return {{.title = "float64"},
          {.title = "float64, a part, into a sum", .ragged = true, .scale = -0.3, .keep = 0.5},
          {.title = "float32", .type = at::kFloat},
          {.title = "float32, a part", .type = at::kFloat, .ragged = true}};
}

MadeLayer make(const std::string& text, const Shape& in) {
  const LayerLine line = line_of(text);
  const LineReader reader(line, {in}, {.source = "a file", .line = 3});
  for (const auto& entry : layer_registry()) {
    if (entry.name != line.op) continue;
    MadeLayer made = entry.make(reader);
    reader.check_keys();
    return made;
  }
  throw DataError(concat("no layer ", line.op));
}

/// y of images x [B, ...] and the layer's parameters, in their order.
using Expected = std::function<Tensor(const Tensor& x, const std::vector<Tensor>& parameters)>;

void expect_near(const Tensor& actual, const Tensor& expected, const Setting& setting,
                 const std::string& what) {
  ASSERT_EQ(actual.numel(), expected.numel()) << what;
  const double error =
      actual.to(at::kDouble).flatten().sub(expected.flatten()).abs().max().item<double>();
  const double size = std::max(1.0, expected.abs().max().item<double>());
  EXPECT_LE(error, (setting.type == at::kDouble ? 1e-11 : 2e-5) * size) << what;
}

void compare(const std::string& text, const Shape& in, const Expected& expected) {
  SCOPED_TRACE(text);
  at::manual_seed(5);
  const MadeLayer made = make(text, in);
  Layer& layer = *made.layer;
  Layout layout;
  layer.declare(layout);
  const std::int64_t features = values_of(in);
  ASSERT_EQ(layer.output_features(), values_of(made.shape));
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(setting.title);
    const std::int64_t first = setting.ragged ? 1 : 0;
    const std::int64_t count = setting.ragged ? 2 : kClients;
    const std::int64_t batch = setting.ragged ? 3 : kBatch;
    const auto random = [&](std::int64_t width) {
      return at::randn({kClients, kBatch, width}, at::kDouble).to(setting.type);
    };
    const auto part = [&](const Tensor& stack) {
      return stack.narrow(0, first, count).narrow(1, 0, batch);
    };
    // Parameters stand among other columns.
    const Tensor rows = at::randn({kClients, layout.size() + 3}, at::kDouble).to(setting.type);
    const Tensor input = part(random(features));
    const Tensor output =
        part(at::full({kClients, kBatch, layer.output_features()}, std::nan(""), setting.type));
    const Tensor dy = part(random(layer.output_features()));
    const Tensor dx = part(at::full({kClients, kBatch, features}, std::nan(""), setting.type));
    const Tensor arena = at::full(rows.sizes(), kUntouched, setting.type);
    const Tensor weights = rows.narrow(0, first, count);
    const Tensor before = weights.to(at::kDouble).clone();
    const Saved saved =
        layer.make_saved(kClients, kBatch, setting.type, Use::Training).narrow(first, count, batch);
    const Pass pass{weights, saved, Use::Training};
    layer.forward(pass, {&input, 1}, output);
    layer.backward(
        pass, {&input, 1}, output, dy, {&dx, 1},
        {.rows = arena.narrow(0, first, count), .scale = setting.scale, .keep = setting.keep});
    Tensor sunk = at::full(rows.sizes(), kUntouched, at::kDouble);
    for (std::int64_t c = 0; c < count; ++c) {
      Shape batch_shape{batch};
      batch_shape.insert(batch_shape.end(), in.begin(), in.end());
      const Tensor x = input[c].to(at::kDouble).reshape(batch_shape).clone().requires_grad_(true);
      std::vector<Tensor> parameters;
      for (const Field& field : layout.fields()) {
        parameters.push_back(before[c]
                                 .narrow(0, field.offset, field.size)
                                 .view(field.shape)
                                 .clone()
                                 .requires_grad_(true));
      }
      const Tensor y = expected(x, parameters);
      Shape shape{batch};
      shape.insert(shape.end(), made.shape.begin(), made.shape.end());
      EXPECT_EQ(y.sizes(), at::IntArrayRef(shape));
      y.flatten(1).mul(dy[c].to(at::kDouble)).sum().backward();
      expect_near(output[c], y.detach(), setting, "output");
      expect_near(dx[c], x.grad(), setting, "gradient of the input");
      for (std::size_t f = 0; f < parameters.size(); ++f) {
        const Field& field = layout.fields()[f];
        if (!has(field.tags, Tag::Trainable)) continue;
        Tensor out = sunk[first + c].narrow(0, field.offset, field.size);
        out.copy_(out * setting.keep + setting.scale * parameters[f].grad().flatten());
      }
    }
    for (const Field& field : layout.fields()) {
      if (!has(field.tags, Tag::Trainable)) continue;
      expect_near(arena.narrow(1, field.offset, field.size),
                  sunk.narrow(1, field.offset, field.size), setting, "gradient of " + field.name);
    }
    EXPECT_TRUE(arena.narrow(1, layout.size(), 3).eq(kUntouched).all().item<bool>());
    // In evaluation nothing is kept, and the values are the same (but for running statistics).
    if (layout.count(Tag::Buffer) > 0) continue;
    const Tensor again = at::empty_like(output);
    const Saved nothing = layer.make_saved(kClients, kBatch, setting.type, Use::Evaluation);
    layer.forward({weights, nothing, Use::Evaluation}, {&input, 1}, again);
    EXPECT_TRUE(again.equal(output));
  }
}

TEST(Convolutions, OfAnyWindowEqualAutograd) {
  struct Case {
    std::string keys;
    std::vector<std::int64_t> stride{1, 1};
    std::vector<std::int64_t> padding{0, 0};
    std::vector<std::int64_t> dilation{1, 1};
    std::int64_t groups = 1;
  };
  const std::vector<Case> cases{
      {.keys = "kernel=3,3"},
      {.keys = "kernel=1,5 padding=0,2", .padding = {0, 2}},
      {.keys = "kernel=4,2 stride=1,3 padding=2,0", .stride = {1, 3}, .padding = {2, 0}},
      {.keys = "kernel=3,3 dilation=2,1 padding=1,1", .padding = {1, 1}, .dilation = {2, 1}},
      {.keys = "kernel=2,3 stride=2,1 padding=3,2 dilation=3,2",
       .stride = {2, 1},
       .padding = {3, 2},
       .dilation = {3, 2}},
      {.keys = "kernel=3,3 padding=1,1 groups=2", .padding = {1, 1}, .groups = 2},
      {.keys = "kernel=3,3 stride=2,2 padding=1,1 groups=4",
       .stride = {2, 2},
       .padding = {1, 1},
       .groups = 4},
      {.keys = "kernel=2,3 dilation=2,2 groups=4", .dilation = {2, 2}, .groups = 4}};
  for (const std::int64_t channels : {4, 12}) {  // few values in a window, and more
    for (const bool bias : {false, true}) {
      for (const Case& of : cases) {
        compare(concat("convolution out=8 ", of.keys, " parameters=w", bias ? ",b" : ""),
                {channels, 9, 8}, [&](const Tensor& x, const std::vector<Tensor>& parameters) {
                  return at::conv2d(x, parameters[0], bias ? parameters[1] : Tensor(), of.stride,
                                    of.padding, of.dilation, of.groups);
                });
      }
      compare(concat("convolution out=6 kernel=3 stride=2 padding=1 dilation=2 groups=2 "
                     "parameters=w",
                     bias ? ",b" : ""),
              {channels, 11}, [&](const Tensor& x, const std::vector<Tensor>& parameters) {
                return at::conv1d(x, parameters[0], bias ? parameters[1] : Tensor(), {2}, {1}, {2},
                                  2);
              });
    }
  }
}

TEST(Convolutions, OfManyChannelsEqualAutograd) {
  // 3x3 windows one place apart go tile by tile; the smallest images do not.
  struct Case {
    std::vector<std::int64_t> padding;
    Shape image;
    std::int64_t outputs;
  };
  const std::vector<Case> cases{{{1, 1}, {8, 9, 8}, 40},  {{0, 0}, {40, 4, 13}, 8},
                                {{2, 2}, {16, 7, 6}, 24}, {{1, 0}, {24, 30, 5}, 16},
                                {{2, 1}, {64, 4, 4}, 72}, {{1, 1}, {8, 3, 3}, 8}};
  for (const bool bias : {false, true}) {
    for (const Case& of : cases) {
      compare(concat("convolution out=", of.outputs, " kernel=3,3 padding=", of.padding[0], ",",
                     of.padding[1], " parameters=w", bias ? ",b" : ""),
              of.image, [&](const Tensor& x, const std::vector<Tensor>& parameters) {
                return at::conv2d(x, parameters[0], bias ? parameters[1] : Tensor(), {1, 1},
                                  of.padding);
              });
    }
  }
}

TEST(Convolutions, CountTheirWorkByGroups) {
  const MadeLayer whole = make("convolution out=8 kernel=3,3 padding=1,1 parameters=w", {4, 6, 5});
  const MadeLayer depthwise =
      make("convolution out=8 kernel=3,3 padding=1,1 groups=4 parameters=w", {4, 6, 5});
  EXPECT_EQ(whole.layer->forward_flops(), 2.0 * 8 * 30 * 4 * 9);
  EXPECT_EQ(depthwise.layer->forward_flops(), 2.0 * 8 * 30 * 9);
}

TEST(Pools, OfAnyWindowEqualAutograd) {
  struct Case {
    std::string keys;
    std::vector<std::int64_t> kernel;
    std::vector<std::int64_t> stride;
    std::vector<std::int64_t> padding{0, 0};
    std::vector<std::int64_t> dilation{1, 1};
    bool ceil = false;
  };
  const std::vector<Case> cases{
      {.keys = "kernel=2,2", .kernel = {2, 2}, .stride = {2, 2}},
      {.keys = "kernel=3,2", .kernel = {3, 2}, .stride = {3, 2}},
      {.keys = "kernel=3,2 stride=2,1 padding=1,0",
       .kernel = {3, 2},
       .stride = {2, 1},
       .padding = {1, 0}},
      {.keys = "kernel=2,2 ceil=1", .kernel = {2, 2}, .stride = {2, 2}, .ceil = true},
      // without the rule that the last window starts inside, there would be one more
      {.keys = "kernel=2,3 stride=3,4 padding=1,1 ceil=1",
       .kernel = {2, 3},
       .stride = {3, 4},
       .padding = {1, 1},
       .ceil = true},
      {.keys = "kernel=1,2 stride=3,5 ceil=1", .kernel = {1, 2}, .stride = {3, 5}, .ceil = true},
      {.keys = "kernel=11,9 stride=4,2 padding=1,0 ceil=1",
       .kernel = {11, 9},
       .stride = {4, 2},
       .padding = {1, 0},
       .ceil = true},
      {.keys = "kernel=2,3 stride=1,2 dilation=3,2",
       .kernel = {2, 3},
       .stride = {1, 2},
       .dilation = {3, 2}},
      {.keys = "kernel=3,3 stride=2,1 padding=1,1 dilation=2,2 ceil=1",
       .kernel = {3, 3},
       .stride = {2, 1},
       .padding = {1, 1},
       .dilation = {2, 2},
       .ceil = true}};
  const Shape in{3, 9, 8};
  for (const Case& of : cases) {
    compare("max_pool " + of.keys, in, [&](const Tensor& x, const std::vector<Tensor>&) {
      return at::max_pool2d(x, of.kernel, of.stride, of.padding, of.dilation, of.ceil);
    });
    if (of.keys.find("dilation") != std::string::npos) continue;
    for (const bool count : {false, true}) {
      compare(concat("average_pool ", of.keys, " count_padding=", count ? 1 : 0), in,
              [&](const Tensor& x, const std::vector<Tensor>&) {
                return at::avg_pool2d(x, of.kernel, of.stride, of.padding, of.ceil, count);
              });
    }
  }
  compare("max_pool kernel=3 stride=2 padding=1 dilation=2 ceil=1", {2, 10},
          [&](const Tensor& x, const std::vector<Tensor>&) {
            return at::max_pool1d(x, {3}, {2}, {1}, {2}, true);
          });
  compare("average_pool kernel=3 padding=1", {2, 10},
          [&](const Tensor& x, const std::vector<Tensor>&) {
            return at::avg_pool1d(x, {3}, {3}, {1});
          });
}

TEST(Pools, ToPartsEqualAutograd) {
  for (const std::vector<std::int64_t>& out :
       std::vector<std::vector<std::int64_t>>{{1, 1}, {4, 3}, {9, 5}, {2, 8}, {12, 1}}) {
    const std::string keys = concat("out=", out[0], ",", out[1]);
    compare("adaptive_max_pool " + keys, {3, 9, 8},
            [&](const Tensor& x, const std::vector<Tensor>&) {
              return std::get<0>(at::adaptive_max_pool2d(x, out));
            });
    compare("adaptive_average_pool " + keys, {3, 9, 8},
            [&](const Tensor& x, const std::vector<Tensor>&) {
              return at::adaptive_avg_pool2d(x, out);
            });
  }
  compare("adaptive_max_pool out=3", {4, 7}, [](const Tensor& x, const std::vector<Tensor>&) {
    return std::get<0>(at::adaptive_max_pool1d(x, {3}));
  });
  compare("adaptive_average_pool out=5", {4, 7}, [](const Tensor& x, const std::vector<Tensor>&) {
    return at::adaptive_avg_pool1d(x, {5});
  });
}

TEST(Norms, EqualAutograd) {
  for (const Shape& in : std::vector<Shape>{{6}, {6, 5}, {6, 4, 40}, {6, 35, 31}, {6, 2, 3, 4}}) {
    for (const std::int64_t groups : {1, 2, 6}) {
      if (in.size() == 1 && groups == 6) continue;  // one value has no deviation
      for (const bool affine : {false, true}) {
        compare(
            concat("group_norm groups=", groups, " epsilon=0.001", affine ? " parameters=w,b" : ""),
            in, [&](const Tensor& x, const std::vector<Tensor>& parameters) {
              return at::group_norm(x, groups, affine ? parameters[0] : Tensor(),
                                    affine ? parameters[1] : Tensor(), 0.001);
            });
      }
    }
    Shape dims;
    std::string keys;
    for (std::size_t d = in.size(); d-- > 0;) {
      dims.insert(dims.begin(), in[d]);
      keys = std::to_string(d) + (keys.empty() ? "" : ",") + keys;
      for (const std::size_t count : {0, 1, 2}) {
        const std::string names = count == 0   ? ""
                                  : count == 1 ? " parameters=w"
                                               : " parameters=w,b";
        compare(concat("layer_norm dims=", keys, names), in,
                [&](const Tensor& x, const std::vector<Tensor>& parameters) {
                  return at::layer_norm(x, dims, count > 0 ? parameters[0] : Tensor(),
                                        count > 1 ? parameters[1] : Tensor());
                });
      }
    }
    // A batch norm's statistics have more than one value at each channel.
    compare("batch_norm epsilon=0.01 momentum=0.3 parameters=w,b,m,v", in,
            [&](const Tensor& x, const std::vector<Tensor>& parameters) {
              return at::batch_norm(x, parameters[0], parameters[1], {}, {}, true, 0.3, 0.01,
                                    false);
            });
  }
}

/// The row after one batch of means 2 and 3 and variances 8 (over n - 1).
Tensor moved_by(const std::string& line) {
  const MadeLayer made = make(line, {2});
  Layout layout;
  made.layer->declare(layout);
  const Tensor rows = at::tensor(std::vector<double>{1, 1, 0, 0, 8, 8, 4, 4}).view({1, 8});
  const Tensor x = at::tensor(std::vector<double>{0, 1, 4, 5}).view({1, 2, 2});
  const Tensor y = at::empty_like(x);
  made.layer->forward(
      {rows, made.layer->make_saved(1, 2, at::kDouble, Use::Training), Use::Training}, {&x, 1}, y);
  return rows.view({8});
}

TEST(Norms, MoveTheirStatisticsByTheirMomentum) {
  const Tensor given = at::tensor(std::vector<double>{1, 1, 0, 0, 6.5, 6.75, 5, 5});
  EXPECT_TRUE(moved_by("batch_norm momentum=0.25 parameters=w,b,m,v").equal(given));
  const Tensor usual = at::tensor(std::vector<double>{1, 1, 0, 0, 7.4, 7.5, 4.4, 4.4});
  EXPECT_TRUE(moved_by("batch_norm parameters=w,b,m,v").allclose(usual, 1e-12)) << "by 0.1";
}

TEST(Norms, AreAccurateFarFromZero) {
  // Squares of values around 1000 would lose the variance in float32.
  for (const std::string text : {"group_norm groups=1", "layer_norm dims=0,1,2"}) {
    const Shape in{8, 80, 80};
    const MadeLayer made = make(text, in);
    const Tensor x = at::randn({1, 1, values_of(in)}, at::kDouble).add(1000).to(at::kFloat);
    const Tensor rows = at::zeros({1, 1}, at::kFloat);
    const Tensor y = at::empty_like(x);
    made.layer->forward(
        {rows, made.layer->make_saved(1, 1, at::kFloat, Use::Training), Use::Training}, {&x, 1}, y);
    const Tensor exact = x.to(at::kDouble);
    const Tensor expected = exact.sub(exact.mean()).div(exact.std(/*unbiased=*/false));
    EXPECT_LT(y.sub(expected).abs().max().item<double>(), 2e-3) << text;
  }
}

/// A model of the lines after an input of this shape.
std::unique_ptr<Model> model_of(const Shape& in, const std::vector<std::string>& lines) {
  ModelDescription description;
  description.add({.op = "input", .numbers = {{"shape", {in.begin(), in.end()}}}});
  for (const std::string& text : lines) {
    LayerLine line = line_of(text);
    line.inputs = {description.lines.size() - 1};
    description.add(std::move(line));
  }
  return build_model(description, "a file");
}

TEST(Norms, AreOneLayerWithTheReluThatFollows) {
  const auto layers_of = [](const Model& model) {
    std::size_t last = 0;
    for (const LayerSummary& one : model.layers()) last = std::max(last, one.node);
    return last;
  };
  const std::string head = "linear out=2 parameters=h";
  for (const std::string norm : {"group_norm groups=2 parameters=w,b", "group_norm groups=2"}) {
    for (const Shape& in : std::vector<Shape>{{4}, {4, 6, 5}}) {
      const std::string flat = concat("reshape shape=", values_of(in));
      const auto fused = model_of(in, {norm, "relu", flat, head});
      Graph graph(values_of(in));
      const std::size_t count = norm.find("parameters") == std::string::npos ? 0 : 2;
      const NormedParts parts{2, in[0] / 2, values_of(in) / in[0]};
      graph.add(std::make_unique<SampleNorm>(ParameterNames(std::vector<std::string>{"w", "b"}),
                                             parts, Shape{in[0]}, count));
      graph.add(std::make_unique<Relu>(values_of(in)));
      graph.add(std::make_unique<Linear>("h", values_of(in), 2, Tag::Head, Bias::None));
      const auto apart = std::make_unique<Model>(std::move(graph));
      EXPECT_EQ(layers_of(*fused), 2U);
      const std::int64_t width = fused->layout()->size();
      ASSERT_EQ(width, apart->layout()->size());
      const Tensor rows = at::randn({kClients, width}, at::kDouble);
      const Tensor x = at::randn({kClients, kBatch, fused->features()}, at::kDouble);
      const Tensor dy = at::randn({kClients, kBatch, 2}, at::kDouble);
      std::vector<Tensor> results;
      for (const Model* model : {fused.get(), apart.get()}) {
        const Activations of =
            model->make_activations(kClients, kBatch, at::kDouble, Use::Training);
        of.input().copy_(x);
        model->forward(rows, of);
        results.push_back(of.logits().clone());
        of.logit_gradient().copy_(dy);
        const Tensor arena = at::empty_like(rows);
        model->backward(rows, of, {.rows = arena});
        results.push_back(arena);
      }
      EXPECT_LT(results[0].sub(results[2]).abs().max().item<double>(), 1e-12);
      EXPECT_LT(results[1].sub(results[3]).abs().max().item<double>(), 1e-11);
    }
  }
}

TEST(Lines, ThatDoNotFitAreRefusedInOneSentence) {
  struct Case {
    std::string text;
    Shape in;
    std::string says;
  };
  const std::vector<Case> cases{
      {"convolution out=4 kernel=3,3 parameters=w", {4}, "it needs 2 to 3 dimensions"},
      {"convolution out=4 kernel=3 parameters=w", {4, 8, 8}, "'kernel' has 1 numbers, it needs 2"},
      {"convolution out=4 kernel=3,3 parameters=w", {4, 8}, "'kernel' has 2 numbers, it needs 1"},
      {"convolution out=4 kernel=3,3 dilation=4,1 parameters=w",
       {4, 8, 8},
       "a window of 9 x 3 does not fit into an image of 8 x 8"},
      {"convolution out=4 kernel=3,3 dilation=0,1 parameters=w", {4, 8, 8}, "'dilation' is 0"},
      {"convolution out=4 kernel=3,3 groups=3 parameters=w",
       {4, 8, 8},
       "its 4 and 4 channels do not make 3 equal groups"},
      {"convolution out=3 kernel=3,3 groups=2 parameters=w",
       {4, 8, 8},
       "its 4 and 3 channels do not make 2 equal groups"},
      {"convolution out=4 kernel=3,3", {4, 8, 8}, "it names 0 parameters"},
      {"convolution out=2000000000 kernel=60000,60000 padding=30000,30000 parameters=w",
       {4, 8, 8},
       "its weights are more than 2^31 numbers"},
      {"convolution out=4 kernel=3,3 ceil=1 parameters=w", {4, 8, 8}, "it has no key 'ceil'"},
      {"max_pool kernel=3,3 padding=2,1",
       {4, 8, 8},
       "'padding' is 2; allowed: at most half of 'kernel', 1"},
      {"max_pool kernel=9,3", {4, 8, 8}, "a window of 9 x 3 does not fit"},
      {"max_pool kernel=2,1 padding=1,0 dilation=4,1",
       {4, 3, 8},
       "a window lies in the padding alone"},
      {"max_pool kernel=2,2 count_padding=1", {4, 8, 8}, "it has no key 'count_padding'"},
      {"max_pool kernel=2,2 ceil=2", {4, 8, 8}, "'ceil' is 2"},
      {"average_pool kernel=2,2 dilation=2,2", {4, 8, 8}, "it has no key 'dilation'"},
      {"adaptive_max_pool out=0,1", {4, 8, 8}, "'out' is 0"},
      {"adaptive_max_pool out=2", {4, 8, 8}, "'out' has 1 numbers, it needs 2"},
      {"batch_norm parameters=w,b", {4, 8, 8}, "it names 2 parameters, it needs 4"},
      {"batch_norm momentum=2 parameters=w,b,m,v", {4}, "'momentum' is 2"},
      {"group_norm groups=3", {4, 8, 8}, "its 4 channels do not make 3 equal groups"},
      {"group_norm", {4, 8, 8}, "the key 'groups' is missing"},
      {"group_norm groups=2 parameters=w", {4, 8, 8}, "it names 1 parameter, it needs 0 or 2"},
      {"group_norm groups=2 epsilon=-1", {4, 8, 8}, "'epsilon' is -1"},
      {"layer_norm dims=0", {4, 8, 8}, "'dims' are not the last ones"},
      {"layer_norm dims=3", {4, 8, 8}, "'dims' is 3"},
      {"layer_norm dims=2 parameters=w,b,c", {4, 8, 8}, "it names 3 parameters"}};
  for (const Case& of : cases) {
    try {
      make(of.text, of.in);
      ADD_FAILURE() << of.text;
    } catch (const DataError& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find(of.says), std::string::npos) << message;
      EXPECT_EQ(message.rfind("a file, layer 3 (", 0), 0U) << message;
    }
  }
}

TEST(Lines, KeepPyTorchsShapes) {
  Layout layout;
  make("convolution out=6 kernel=3 groups=2 parameters=w", {4, 9}).layer->declare(layout);
  EXPECT_EQ(layout.field("w").shape, (Shape{6, 2, 3}));
  EXPECT_EQ(layout.field("w").fan_in, 6);
  Layout other;
  make("layer_norm dims=1,2 parameters=w,b", {4, 8, 6}).layer->declare(other);
  EXPECT_EQ(other.field("b").shape, (Shape{8, 6}));
  EXPECT_TRUE(has(other.field("b").tags, Tag::Norm));
}

}  // namespace
}  // namespace fedhpc
