#include "fedhpc/models/graph.hpp"

#include <random>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <gtest/gtest.h>

#include "fedhpc/models/model.hpp"

namespace fedhpc {
namespace {

constexpr std::int64_t kWidth = 3;
constexpr std::int64_t kClients = 2;
constexpr std::int64_t kBatch = 4;

/// A layer whose gradient needs its output: nobody may work in its memory.
class Sigmoid final : public Layer {
 public:
  std::int64_t output_features() const override { return kWidth; }
  bool in_place() const override { return true; }
  bool reads_output() const override { return true; }
  void forward(const Pass&, Stacks inputs, const Tensor& output) const override {
    output.copy_(inputs[0].sigmoid());
  }
  void backward(const Pass&, Stacks, const Tensor& output, const Tensor& output_gradient,
                Stacks input_gradients, const GradientSink&) const override {
    if (!input_gradients[0].defined()) return;
    input_gradients[0].copy_(output_gradient.mul(output).mul(output.neg().add(1)));
  }
};

/// x * y, which reads both inputs on the way back.
class Product final : public Layer {
 public:
  std::int64_t output_features() const override { return kWidth; }
  void forward(const Pass&, Stacks inputs, const Tensor& output) const override {
    output.copy_(inputs[0].mul(inputs[1]));
  }
  void backward(const Pass&, Stacks inputs, const Tensor&, const Tensor& output_gradient,
                Stacks input_gradients, const GradientSink&) const override {
    for (const std::size_t k : {0U, 1U}) {
      if (input_gradients[k].defined()) {
        input_gradients[k].copy_(output_gradient.mul(inputs[1 - k]));
      }
    }
  }
};

/// x - y in the memory of x.
class Difference final : public Layer {
 public:
  std::int64_t output_features() const override { return kWidth; }
  bool in_place() const override { return true; }
  void forward(const Pass&, Stacks inputs, const Tensor& output) const override {
    output.copy_(inputs[0].sub(inputs[1]));
  }
  void backward(const Pass&, Stacks, const Tensor&, const Tensor& output_gradient,
                Stacks input_gradients, const GradientSink&) const override {
    if (input_gradients[1].defined()) input_gradients[1].copy_(output_gradient.neg());
    if (input_gradients[0].defined()) input_gradients[0].copy_(output_gradient);
  }
};

enum class Kind { Linear, LinearRelu, Relu, Sigmoid, Sum, Product, Difference };

struct Drawn {
  Kind kind;
  std::vector<std::size_t> inputs;
};

/// A graph of up to 14 nodes in which every value is used. Inputs may be one value twice.
std::vector<Drawn> drawn(std::mt19937& random) {
  std::vector<Drawn> nodes{{Kind::Linear, {}}};  // 0 stands for the input
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  std::vector<std::size_t> unused{0};
  const std::size_t count = 2 + below(10);
  const auto pick = [&]() -> std::size_t {
    if (!unused.empty() && below(2) == 0) return unused[below(unused.size())];
    return below(nodes.size());
  };
  const auto append = [&](Kind kind, std::vector<std::size_t> inputs) {
    for (const std::size_t input : inputs) std::erase(unused, input);
    unused.push_back(nodes.size());
    nodes.push_back({kind, std::move(inputs)});
  };
  for (std::size_t n = 0; n < count; ++n) {
    const auto kind = static_cast<Kind>(below(7));
    std::vector<std::size_t> inputs{pick()};
    if (kind == Kind::Sum || kind == Kind::Product || kind == Kind::Difference)
      inputs.push_back(pick());
    if (kind == Kind::Sum && below(3) == 0) inputs.push_back(pick());
    append(kind, inputs);
  }
  while (unused.size() > 1) append(Kind::Sum, {unused[0], unused[1]});
  append(Kind::Linear, {unused[0]});
  return nodes;
}

std::string name_of(std::size_t n) { return "l" + std::to_string(n); }

Model model_of(const std::vector<Drawn>& nodes) {
  Graph graph(kWidth);
  for (std::size_t n = 1; n < nodes.size(); ++n) {
    std::unique_ptr<Layer> layer;
    switch (nodes[n].kind) {
      case Kind::Linear:
        layer = std::make_unique<Linear>(name_of(n), kWidth, kWidth,
                                         n + 1 == nodes.size() ? Tag::Head : Tag::None);
        break;
      case Kind::LinearRelu:
        layer = std::make_unique<Linear>(name_of(n), kWidth, kWidth, Tag::None,
                                         n % 2 == 0 ? Bias::Use : Bias::None, 1, Then::Relu);
        break;
      case Kind::Relu:
        layer = std::make_unique<Relu>(kWidth);
        break;
      case Kind::Sigmoid:
        layer = std::make_unique<Sigmoid>();
        break;
      case Kind::Sum:
        layer = std::make_unique<Sum>(kWidth);
        break;
      case Kind::Product:
        layer = std::make_unique<Product>();
        break;
      case Kind::Difference:
        layer = std::make_unique<Difference>();
        break;
    }
    graph.add(std::move(layer), nodes[n].inputs);
  }
  return Model(std::move(graph));
}

/// The same by LibTorch, for one client: row [P], input [B, width].
Tensor expected(const std::vector<Drawn>& nodes, const Layout& layout, const Tensor& row,
                const Tensor& input) {
  const auto field = [&](const std::string& name) {
    const Field& f = layout.field(name);
    return row.narrow(0, f.offset, f.size).view(f.shape);
  };
  std::vector<Tensor> values{input};
  for (std::size_t n = 1; n < nodes.size(); ++n) {
    const Tensor x = values[nodes[n].inputs[0]];
    switch (nodes[n].kind) {
      case Kind::Linear:
        values.push_back(at::linear(x, field(name_of(n) + ".weight"), field(name_of(n) + ".bias")));
        break;
      case Kind::LinearRelu: {
        const Tensor product = at::linear(x, field(name_of(n) + ".weight"));
        values.push_back(at::relu(n % 2 == 0 ? product.add(field(name_of(n) + ".bias")) : product));
        break;
      }
      case Kind::Relu:
        values.push_back(at::relu(x));
        break;
      case Kind::Sigmoid:
        values.push_back(at::sigmoid(x));
        break;
      case Kind::Sum: {
        Tensor sum = x;
        for (std::size_t k = 1; k < nodes[n].inputs.size(); ++k) {
          sum = sum.add(values[nodes[n].inputs[k]]);
        }
        values.push_back(sum);
        break;
      }
      case Kind::Product:
        values.push_back(x.mul(values[nodes[n].inputs[1]]));
        break;
      case Kind::Difference:
        values.push_back(x.sub(values[nodes[n].inputs[1]]));
        break;
    }
  }
  return values.back();
}

TEST(Graph, DrawnGraphsEqualAutograd) {
  at::manual_seed(5);
  std::mt19937 random(7);
  for (int trial = 0; trial < 400; ++trial) {
    SCOPED_TRACE(trial);
    const std::vector<Drawn> nodes = drawn(random);
    const Model model = model_of(nodes);
    const Tensor rows = at::randn({kClients, model.layout()->size()}, at::kDouble);
    const Tensor input = at::randn({kClients, kBatch, kWidth}, at::kDouble);
    const Tensor dy = at::randn({kClients, kBatch, kWidth}, at::kDouble);
    const Tensor arena = at::full(rows.sizes(), std::nan(""), at::kDouble);
    for (const Use use : {Use::Evaluation, Use::Training}) {
      const Activations activations = model.make_activations(kClients, kBatch, at::kDouble, use);
      for (int again = 0; again < 2; ++again) {  // in memory that a pass has left
        activations.input().copy_(input);
        model.forward(rows, activations);
        for (std::int64_t c = 0; c < kClients; ++c) {
          const Tensor y = expected(nodes, *model.layout(), rows[c], input[c]);
          const double size = 1 + y.abs().max().item<double>();
          ASSERT_LT(activations.logits()[c].sub(y).abs().max().item<double>(), 1e-12 * size);
        }
        if (use == Use::Evaluation) continue;
        activations.logit_gradient().copy_(dy);
        model.backward(rows, activations, {.rows = arena, .scale = 1, .keep = 0});
        for (std::int64_t c = 0; c < kClients; ++c) {
          const Tensor row = rows[c].clone().requires_grad_(true);
          expected(nodes, *model.layout(), row, input[c]).mul(dy[c]).sum().backward();
          const double size = 1 + row.grad().abs().max().item<double>();
          ASSERT_LT(arena[c].sub(row.grad()).abs().max().item<double>(), 1e-12 * size);
        }
      }
    }
  }
}

TEST(Graph, ColumnsOfTheHeadAloneAreWritten) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 20; ++trial) {
    const std::vector<Drawn> nodes = drawn(random);
    const Model model = model_of(nodes);
    const Tensor rows = at::randn({kClients, model.layout()->size()}, at::kDouble);
    const Activations activations =
        model.make_activations(kClients, kBatch, at::kDouble, Use::Training);
    activations.input().copy_(at::randn({kClients, kBatch, kWidth}, at::kDouble));
    model.forward(rows, activations);
    activations.logit_gradient().fill_(1);
    const Tensor arena = at::full(rows.sizes(), std::nan(""), at::kDouble);
    model.backward(rows, activations,
                   {.rows = arena, .scale = 1, .keep = 0, .columns = {.with = Tag::Head}});
    const auto [begin, end] = model.layout()->ranges(Tag::Head).front();
    EXPECT_FALSE(arena.narrow(1, begin, end - begin).isnan().any().item<bool>());
    EXPECT_TRUE(arena.narrow(1, 0, begin).isnan().all().item<bool>());
  }
}

TEST(Graph, ChainsTakeTurnsInTwoBuffers) {
  Graph graph(8);
  for (const std::int64_t width : {16, 4, 16, 2}) {
    graph.add(std::make_unique<Linear>(concat("fc", graph.last()), graph.output_features(), width,
                                       Tag::None));
    graph.add(std::make_unique<Relu>(width));
  }
  const Model model(std::move(graph));
  const Activations evaluation = model.make_activations(1, 1, at::kDouble, Use::Evaluation);
  EXPECT_EQ(evaluation.bytes(), (8 + 16 + 4) * 8);  // the input, layers 1 and 3, layers 2 and 4
}

TEST(Graph, KnowsWhetherOneValueIsAllThatLaterNodesTake) {
  const auto linear = [](const char* name) {
    return std::make_unique<Linear>(name, kWidth, kWidth, Tag::None);
  };
  Graph graph(kWidth);
  const std::size_t a = graph.add(linear("a"));
  const std::size_t b = graph.add(linear("b"));
  const std::size_t sum = graph.add(std::make_unique<Sum>(kWidth), {a, b});
  const std::size_t c = graph.add(linear("c"));
  EXPECT_TRUE(graph.is_cut(a));
  EXPECT_FALSE(graph.is_cut(b));  // the sum takes a as well
  EXPECT_FALSE(graph.is_cut(sum));
  EXPECT_TRUE(graph.is_cut(c));
  EXPECT_FALSE(graph.is_cut(c + 1));
}

}  // namespace
}  // namespace fedhpc
