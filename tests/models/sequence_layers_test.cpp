#include "fedhpc/models/sequence_layers.hpp"

#include <limits>
#include <numeric>
#include <optional>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/gru.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "fedhpc/core/rng.hpp"
#include "fedhpc/models/description.hpp"

// Recurrent layers and attention against autograd in float64, one client at a time.
namespace fedhpc {
namespace {

constexpr std::int64_t kClients = 3;
constexpr std::int64_t kBatch = 4;
constexpr double kUntouched = 7;

double error(const Tensor& actual, const Tensor& expected) {
  return actual.sub(expected).abs().max().item<double>();
}

/// A layer on its own with random weights, inputs and gradient of its output.
struct Trial {
  Trial(Layer& one, const std::vector<std::int64_t>& widths, at::ScalarType type = at::kDouble)
      : layer(one) {
    auto fresh = std::make_shared<Layout>();
    layer.declare(*fresh);
    layout = fresh;
    ids.resize(kClients);
    std::iota(ids.begin(), ids.end(), 40);
    rows = at::randn({kClients, layout->size()}, at::kDouble).mul(0.5).to(type);
    for (const std::int64_t width : widths) {
      inputs.push_back(at::randn({kClients, kBatch, width}, at::kDouble).to(type));
      input_gradients.push_back(at::full_like(inputs.back(), std::nan("")));
    }
    output = at::full({kClients, kBatch, layer.output_features()}, std::nan(""), type);
    dy = at::randn(output.sizes(), at::kDouble).to(type);
    arena = at::full(rows.sizes(), kUntouched, type);
    saved = layer.make_saved(kClients, kBatch, rows.options(), Use::Training);
  }

  Pass pass(const Tensor& weights, const Saved& memory, Use use = Use::Training) const {
    Pass of{weights, memory, use};
    of.draws = {.seed = 3, .round = 5, .clients = ids};
    return of;
  }

  void run(const GradientSink& sink) {
    layer.forward(pass(rows, saved), inputs, output);
    layer.backward(pass(rows, saved), inputs, output, dy, input_gradients, sink);
  }
  void run() { run({.rows = arena, .scale = 1, .keep = 0}); }

  Tensor field(const Tensor& row, std::size_t number) const {
    const Field& f = layout->fields()[number];
    return row.narrow(0, f.offset, f.size).view(f.shape);
  }

  /// `expected(inputs, row)` is the layer by ATen's operators for a client's batch.
  template <typename Expected>
  void compare(Expected&& expected, double within = 1e-10) {
    run();
    for (std::int64_t c = 0; c < kClients; ++c) {
      std::vector<Tensor> x;
      for (const Tensor& input : inputs) {
        x.push_back(input[c].to(at::kDouble).clone().requires_grad_(true));
      }
      const Tensor row = rows[c].to(at::kDouble).clone().requires_grad_(true);
      const Tensor y = expected(x, row, c).flatten(1);
      y.mul(dy[c]).sum().backward();
      EXPECT_LT(error(output[c], y), within);
      for (std::size_t k = 0; k < x.size(); ++k) {
        EXPECT_LT(error(input_gradients[k][c], x[k].grad()), within) << "input " << k;
      }
      if (row.grad().defined() && row.numel() > 0) {
        EXPECT_LT(error(arena[c], row.grad()), within * 10);
      }
    }
  }

  Layer& layer;
  LayoutPtr layout;
  std::vector<std::int64_t> ids;
  Tensor rows;  // [C, P]
  std::vector<Tensor> inputs;
  std::vector<Tensor> input_gradients;
  Tensor output;
  Tensor dy;
  Tensor arena;  // [C, P]
  Saved saved;
};

struct RecurrentCase {
  Cell cell;
  Direction direction;
  Bias bias;
};

std::vector<RecurrentCase> recurrent_cases() {
  std::vector<RecurrentCase> all;
  for (const Cell cell : {Cell::Lstm, Cell::Gru}) {
    for (const Direction direction : {Direction::Forward, Direction::Reverse}) {
      for (const Bias bias : {Bias::Use, Bias::None}) all.push_back({cell, direction, bias});
    }
  }
  return all;
}

constexpr Recurrent::Sizes kSizes{.places = 5, .in = 3, .hidden = 7};

/// The layer by ATen: [B, places in] to [B, places, hidden].
Tensor reference(const RecurrentCase& one, const Recurrent::Sizes& sizes, const Trial& trial,
                 const Tensor& input, const Tensor& row) {
  Tensor x = input.view({input.size(0), sizes.places, sizes.in});
  if (one.direction == Direction::Reverse) x = x.flip(1);
  std::vector<Tensor> parameters;
  for (std::size_t f = 0; f < trial.layout->fields().size(); ++f) {
    parameters.push_back(trial.field(row, f));
  }
  const Tensor start = at::zeros({1, input.size(0), sizes.hidden}, input.options());
  const bool biased = one.bias == Bias::Use;
  Tensor y = one.cell == Cell::Lstm
                 ? std::get<0>(at::lstm(x, {start, start}, parameters, biased, 1, 0, false, false,
                                        /*batch_first=*/true))
                 : std::get<0>(at::gru(x, start, parameters, biased, 1, 0, false, false, true));
  return one.direction == Direction::Reverse ? y.flip(1) : y;
}

TEST(Recurrent, EqualsAutograd) {
  for (const RecurrentCase& one : recurrent_cases()) {
    for (const Recurrent::Sizes& sizes : {kSizes, Recurrent::Sizes{1, 4, 6},
                                          Recurrent::Sizes{2, 1, 1}, Recurrent::Sizes{9, 8, 33}}) {
      Recurrent layer("rnn", one.cell, sizes, one.direction, one.bias);
      Trial trial(layer, {sizes.places * sizes.in});
      const auto expected = [&](const std::vector<Tensor>& x, const Tensor& row, std::int64_t) {
        return reference(one, sizes, trial, x[0], row);
      };
      trial.compare(expected);
      trial.compare(expected);  // in memory that a pass has left
    }
  }
}

TEST(Recurrent, EqualsAutogradInFloat32) {
  for (const RecurrentCase& one : recurrent_cases()) {
    Recurrent layer("rnn", one.cell, {6, 5, 20}, one.direction, one.bias);
    Trial trial(layer, {6 * 5}, at::kFloat);
    trial.compare(
        [&](const std::vector<Tensor>& x, const Tensor& row, std::int64_t) {
          return reference(one, {6, 5, 20}, trial, x[0], row);
        },
        2e-5);
  }
}

TEST(Recurrent, SaturatedGatesEqualAutograd) {
  for (const RecurrentCase& one : recurrent_cases()) {
    Recurrent layer("rnn", one.cell, kSizes, one.direction, one.bias);
    Trial trial(layer, {kSizes.places * kSizes.in});
    trial.inputs[0].mul_(2000);
    trial.compare([&](const std::vector<Tensor>& x, const Tensor& row,
                      std::int64_t) { return reference(one, kSizes, trial, x[0], row); },
                  1e-8);
  }
}

TEST(Recurrent, WorksOnPartsOfItsMemory) {
  for (const RecurrentCase& one : recurrent_cases()) {
    Recurrent layer("rnn", one.cell, kSizes, one.direction, one.bias);
    Trial trial(layer, {kSizes.places * kSizes.in});
    const auto part = [](const Tensor& stack) { return stack.narrow(0, 1, 2).narrow(1, 0, 3); };
    const Tensor x = part(trial.inputs[0]);
    const Tensor y = part(trial.output);
    const Tensor dy = part(trial.dy);
    const Tensor dx = part(trial.input_gradients[0]);
    const Tensor weights = trial.rows.narrow(0, 1, 2);
    const Saved memory = trial.saved.narrow(1, 2, 3);
    const Pass pass{weights, memory, Use::Training};
    layer.forward(pass, {&x, 1}, y);
    layer.backward(pass, {&x, 1}, y, dy, {&dx, 1},
                   {.rows = trial.arena.narrow(0, 1, 2), .scale = 1, .keep = 0});
    EXPECT_TRUE(trial.arena[0].eq(kUntouched).all().item<bool>());
    EXPECT_TRUE(trial.output[0].isnan().all().item<bool>());
    for (std::int64_t c = 0; c < 2; ++c) {
      const Tensor row = weights[c].clone().requires_grad_(true);
      const Tensor in = x[c].clone().requires_grad_(true);
      const Tensor expected = reference(one, kSizes, trial, in, row).flatten(1);
      expected.mul(dy[c]).sum().backward();
      EXPECT_LT(error(y[c], expected), 1e-12);
      EXPECT_LT(error(dx[c], in.grad()), 1e-12);
      EXPECT_LT(error(trial.arena[c + 1], row.grad()), 1e-11);
    }
  }
}

TEST(Recurrent, SinkScalesKeepsAndTakesSomeColumns) {
  for (const RecurrentCase& one : recurrent_cases()) {
    Recurrent layer("rnn", one.cell, kSizes, one.direction, one.bias);
    Trial trial(layer, {kSizes.places * kSizes.in});
    trial.run();
    const Tensor gradient = trial.arena.clone();
    const Tensor before = trial.rows.clone();
    for (const Columns& columns : {Columns{}, Columns{.with = Tag::Bias},
                                   Columns{.without = Tag::Bias}, Columns{.with = Tag::Head}}) {
      trial.rows.copy_(before);
      trial.run({.rows = trial.rows, .scale = -0.1, .keep = 1, .columns = columns});
      Tensor expected = before.clone();
      for (const auto& [begin, end] : trial.layout->ranges(Tag::Trainable, columns)) {
        expected.narrow(1, begin, end - begin).sub_(gradient.narrow(1, begin, end - begin), 0.1);
      }
      EXPECT_LT(error(trial.rows, expected), 1e-13);
      EXPECT_TRUE(trial.rows.eq(before).equal(expected.eq(before)));
    }
  }
}

TEST(Recurrent, OneRowServesAllClientsInEvaluation) {
  for (const RecurrentCase& one : recurrent_cases()) {
    Recurrent layer("rnn", one.cell, kSizes, one.direction, one.bias);
    Trial trial(layer, {kSizes.places * kSizes.in});
    trial.rows = trial.rows.narrow(0, 0, 1).clone().expand({kClients, -1});
    trial.run();
    const Tensor trained = trial.output.clone();
    const Saved memory = layer.make_saved(kClients, kBatch, at::kDouble, Use::Evaluation);
    layer.forward(trial.pass(trial.rows, memory, Use::Evaluation), trial.inputs, trial.output);
    EXPECT_TRUE(trial.output.equal(trained));
  }
}

struct AttentionCase {
  Attention::Sizes sizes;
  Attention::Settings settings;
};

constexpr Attention::Sizes kHeads{.heads = 2, .queries = 5, .keys = 5, .width = 4, .values = 4};

std::vector<AttentionCase> attention_cases() {
  using Mask = Attention::Mask;
  const Attention::Sizes cross{.heads = 3, .queries = 4, .keys = 35, .width = 6, .values = 3};
  const Attention::Sizes wide{.heads = 1, .queries = 21, .keys = 17, .width = 12, .values = 12};
  const Attention::Sizes few_keys{.heads = 2, .queries = 6, .keys = 2, .width = 3, .values = 5};
  return {{kHeads, {.scale = 0.5}},
          {kHeads, {.scale = -1.5, .causal = true}},
          {cross, {.scale = 0.4}},
          {cross, {.scale = 0.4, .causal = true, .mask = Mask::OfAllHeads}},
          {wide, {.scale = 0.3, .causal = true}},
          {wide, {.scale = 30}},
          {few_keys, {.scale = 1, .causal = true}},
          {kHeads, {.scale = 0.5, .mask = Mask::OfAllHeads}},
          {cross, {.scale = 0.5, .mask = Mask::OfEachHead}},
          {{700, 2, 3, 2, 2}, {.scale = 1}},  // several blocks of samples
          {{9000, 2, 2, 1, 1}, {.scale = 1, .dropout = 0.25}},
          {kHeads, {.scale = 0.5, .causal = true, .dropout = 0.3, .number = 9}},
          {cross, {.scale = 0.5, .mask = Mask::OfEachHead, .dropout = 0.5, .number = 2}}};
}

std::vector<std::int64_t> widths_of(const AttentionCase& one) {
  const Attention::Sizes& of = one.sizes;
  std::vector<std::int64_t> widths{of.heads * of.queries * of.width, of.heads * of.keys * of.width,
                                   of.heads * of.keys * of.values};
  if (one.settings.mask == Attention::Mask::OfAllHeads) widths.push_back(of.queries * of.keys);
  if (one.settings.mask == Attention::Mask::OfEachHead) {
    widths.push_back(of.heads * of.queries * of.keys);
  }
  return widths;
}

/// The factors of dropout of client c, by the words of its key.
Tensor factors_of(const AttentionCase& one, const Trial& trial, std::int64_t c,
                  const std::vector<std::int64_t>& shape) {
  Draws draws(LayerDraws{.seed = 3, .round = 5, .clients = trial.ids}.key(c, one.settings.number));
  const Tensor factors = at::empty(shape, at::kDouble);
  double* f = factors.data_ptr<double>();
  const double p = one.settings.dropout;
  for (std::int64_t j = 0; j < factors.numel(); j += 2) {
    const std::uint64_t word = draws.raw();
    for (std::int64_t i = j; i < std::min(j + 2, factors.numel()); ++i) {
      const double number = static_cast<double>(i == j ? word & 0xffffffffU : word >> 32);
      f[i] = number < p * 4294967296.0 ? 0 : 1 / (1 - p);
    }
  }
  return factors;
}

/// The layer by ATen for client c: inputs [B, ...] to [B, heads, queries, values].
Tensor reference(const AttentionCase& one, const Trial& trial, const std::vector<Tensor>& x,
                 std::int64_t c) {
  const Attention::Sizes& of = one.sizes;
  const Tensor q = x[0].view({-1, of.heads, of.queries, of.width});
  const Tensor k = x[1].view({-1, of.heads, of.keys, of.width});
  const Tensor v = x[2].view({-1, of.heads, of.keys, of.values});
  std::optional<Tensor> mask;
  if (x.size() == 4) mask = x[3].view({kBatch, -1, of.queries, of.keys});
  if (one.settings.causal) {
    const Tensor seen = at::ones({of.queries, of.keys}, at::kBool).tril();
    const double nothing = -std::numeric_limits<double>::infinity();
    mask = mask ? at::where(seen, *mask, at::full({}, nothing, at::kDouble))
                : at::zeros(seen.sizes(), at::kDouble).masked_fill(seen.logical_not(), nothing);
  }
  if (one.settings.dropout == 0) {
    return at::scaled_dot_product_attention(q, k, v, mask, 0, false, one.settings.scale);
  }
  Tensor scores = q.matmul(k.transpose(-1, -2)).mul(one.settings.scale);
  if (mask) scores = scores.add(*mask);
  const Tensor factors = factors_of(one, trial, c, {kBatch, of.heads, of.queries, of.keys});
  return scores.softmax(-1).mul(factors).matmul(v);
}

TEST(Attention, EqualsAutograd) {
  for (const AttentionCase& one : attention_cases()) {
    SCOPED_TRACE(::testing::Message()
                 << one.sizes.heads << ' ' << one.sizes.queries << ' ' << one.sizes.keys
                 << " causal " << one.settings.causal << " dropout " << one.settings.dropout);
    Attention layer(one.sizes, one.settings);
    Trial trial(layer, widths_of(one));
    trial.compare([&](const std::vector<Tensor>& x, const Tensor&, std::int64_t c) {
      return reference(one, trial, x, c);
    });
  }
}

TEST(Attention, EqualsAutogradInFloat32) {
  for (const AttentionCase& one : attention_cases()) {
    Attention layer(one.sizes, one.settings);
    Trial trial(layer, widths_of(one), at::kFloat);
    trial.compare([&](const std::vector<Tensor>& x, const Tensor&,
                      std::int64_t c) { return reference(one, trial, x, c); },
                  one.settings.scale > 10 ? 2e-3 : 2e-5);
  }
}

TEST(Attention, QueriesThatSeeNothingGiveZeros) {
  const AttentionCase one{kHeads, {.scale = 0.5, .mask = Attention::Mask::OfAllHeads}};
  Attention layer(one.sizes, one.settings);
  Trial trial(layer, widths_of(one));
  const Tensor mask = trial.inputs[3].view({kClients, kBatch, 5, 5});
  mask.select(2, 1).fill_(-std::numeric_limits<double>::infinity());
  mask.select(2, 2).select(2, 0).fill_(-std::numeric_limits<double>::infinity());
  trial.run();
  const Tensor y = trial.output.view({kClients, kBatch, 2, 5, 4});
  EXPECT_TRUE(y.select(3, 1).eq(0).all().item<bool>());
  EXPECT_TRUE(y.isfinite().all().item<bool>());
  for (const Tensor& gradient : trial.input_gradients) {
    EXPECT_TRUE(gradient.isfinite().all().item<bool>());
  }
  const Tensor of_mask = trial.input_gradients[3].view({kClients, kBatch, 5, 5});
  EXPECT_TRUE(of_mask.select(2, 1).eq(0).all().item<bool>());
  EXPECT_TRUE(of_mask.select(2, 2).select(2, 0).eq(0).all().item<bool>());
}

TEST(Attention, WorksOnPartsOfItsMemory) {
  for (const AttentionCase& one : attention_cases()) {
    Attention layer(one.sizes, one.settings);
    Trial whole(layer, widths_of(one));
    whole.run();
    Trial trial(layer, widths_of(one));
    const auto part = [](const Tensor& stack) { return stack.narrow(0, 1, 2).narrow(1, 0, 3); };
    std::vector<Tensor> x;
    std::vector<Tensor> dx;
    for (std::size_t k = 0; k < whole.inputs.size(); ++k) {
      x.push_back(part(whole.inputs[k]));
      dx.push_back(part(trial.input_gradients[k]));
    }
    const Tensor weights = trial.rows.narrow(0, 1, 2);
    const Saved memory = trial.saved.narrow(1, 2, 3);
    Pass pass{weights, memory, Use::Training};
    pass.draws = {
        .seed = 3, .round = 5, .clients = std::span<const std::int64_t>(trial.ids).subspan(1)};
    layer.forward(pass, x, part(trial.output));
    layer.backward(pass, x, part(trial.output), part(whole.dy), dx, {.rows = trial.arena});
    EXPECT_TRUE(part(trial.output).equal(part(whole.output)));
    EXPECT_TRUE(trial.output[0].isnan().all().item<bool>());
    for (std::size_t k = 0; k < dx.size(); ++k) {
      EXPECT_TRUE(dx[k].equal(part(whole.input_gradients[k]))) << "input " << k;
      EXPECT_TRUE(trial.input_gradients[k][0].isnan().all().item<bool>());
    }
  }
}

TEST(Attention, EvaluationDropsNothing) {
  const AttentionCase one{kHeads, {.scale = 0.5, .dropout = 0.4}};
  Attention layer(one.sizes, one.settings);
  Trial trial(layer, widths_of(one));
  const Saved memory = layer.make_saved(kClients, kBatch, at::kDouble, Use::Evaluation);
  layer.forward(trial.pass(trial.rows, memory, Use::Evaluation), trial.inputs, trial.output);
  const Tensor dropped = trial.output.clone();
  const AttentionCase plain{kHeads, {.scale = 0.5}};
  for (std::int64_t c = 0; c < kClients; ++c) {
    std::vector<Tensor> x;
    for (const Tensor& input : trial.inputs) x.push_back(input[c]);
    EXPECT_LT(error(trial.output[c], reference(plain, trial, x, c).flatten(1)), 1e-12);
  }
  trial.run();
  EXPECT_FALSE(trial.output.equal(dropped));
}

TEST(Attention, GivesTheGradientsThatAreWanted) {
  const AttentionCase one{kHeads, {.scale = 0.5, .mask = Attention::Mask::OfEachHead}};
  Attention layer(one.sizes, one.settings);
  Trial trial(layer, widths_of(one));
  trial.run();
  for (std::size_t wanted = 0; wanted < 4; ++wanted) {
    std::vector<Tensor> gradients(4);
    gradients[wanted] = at::empty_like(trial.inputs[wanted]);
    layer.forward(trial.pass(trial.rows, trial.saved), trial.inputs, trial.output);
    layer.backward(trial.pass(trial.rows, trial.saved), trial.inputs, trial.output, trial.dy,
                   gradients, {.rows = trial.arena});
    EXPECT_TRUE(gradients[wanted].equal(trial.input_gradients[wanted]));
  }
}

std::string message_of(const std::vector<std::string>& lines) {
  ModelDescription description;
  for (const std::string& line : lines) description.add(line_of(line));
  try {
    build_model(description, "model.file 'net.h5'");
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

TEST(SequenceDescriptions, AreBuilt) {
  ModelDescription description;
  for (const char* line :
       {"input shape=5,6", "lstm hidden=8 inputs=0 parameters=a.w,a.u,a.b,a.c",
        "gru hidden=4 reverse=1 inputs=1 parameters=g.w,g.u", "attention causal=1 inputs=2,2,2",
        "reshape shape=20 inputs=3", "linear out=3 inputs=4 parameters=fc.weight,fc.bias"}) {
    description.add(line_of(line));
  }
  const auto model = build_model(description, "a test");
  const Layout& layout = *model->layout();
  EXPECT_EQ(layout.size(), 32 * (6 + 8 + 2) + 12 * (8 + 4) + 63);
  EXPECT_EQ(layout.field("a.u").shape, (Shape{32, 8}));
  EXPECT_EQ(layout.field("g.w").shape, (Shape{12, 8}));
  for (const char* name : {"a.w", "a.u", "a.b", "a.c"}) {
    EXPECT_EQ(layout.field(name).fan_in, 8);
    EXPECT_EQ(layout.field(name).initial, Initial::Drawn);
  }
  EXPECT_TRUE(has(layout.field("a.c").tags, Tag::Bias));
  EXPECT_EQ(layout.field("fc.weight").tags, Tag::Head | kWeightTags);
  EXPECT_EQ(model->classes(), 3);
  // scale = 1 / sqrt(E) where it is left out
  const Activations activations = model->make_activations(1, 2, at::kDouble, Use::Training);
  activations.input().copy_(at::randn({1, 2, 30}, at::kDouble));
  model->forward(at::randn({1, layout.size()}, at::kDouble), activations);
  const Tensor h = activations.values[2].view({2, 5, 4});
  const Tensor y = at::scaled_dot_product_attention(h, h, h, {}, 0, true);
  EXPECT_LT(error(activations.values[3].view({2, 5, 4}), y), 1e-12);
}

TEST(SequenceDescriptions, BadOnesAreOneSentence) {
  const std::string input = "input shape=5,6";
  const auto fails = [&](const std::vector<std::string>& lines, const std::string& what) {
    const std::string message = message_of(lines);
    EXPECT_NE(message.find("model.file 'net.h5', layer "), std::string::npos) << message;
    EXPECT_NE(message.find(what), std::string::npos) << message;
  };
  fails({"input shape=30", "lstm hidden=8 inputs=0 parameters=a,b"}, "it needs 2 dimensions");
  fails({input, "gru inputs=0 parameters=a,b"}, "the key 'hidden' is missing");
  fails({input, "lstm hidden=8 inputs=0 parameters=a,b,c"}, "it names 3 parameters");
  fails({input, "lstm hidden=8 reverse=2 inputs=0 parameters=a,b"}, "'reverse' is 2");
  fails({input, "lstm hidden=2000000 inputs=0 parameters=a,b"}, "more than 2^31 numbers");
  fails({input, "gru hidden=4 layers=2 inputs=0 parameters=a,b"}, "it has no key 'layers'");
  fails({input, "attention inputs=0,0"}, "it has 2 inputs");
  fails({"input shape=6", "attention inputs=0,0,0"}, "it needs 2 dimensions or more");
  fails({input, "reshape shape=6,5 inputs=0", "attention inputs=0,1,0"}, "which are no q, k and v");
  fails({input, "attention causal=2 inputs=0,0,0"}, "'causal' is 2");
  fails({input, "attention dropout=1.5 inputs=0,0,0"}, "'dropout' is 1.5");
  fails({input, "attention inputs=0,0,0,0"}, "its mask has the shape [5, 6], it needs [5, 5]");
  fails({"input shape=40000,1,40000", "reshape shape=40000,40000,1 inputs=0",
         "attention inputs=1,1,1"},
        "more than 2^31 numbers");
}

}  // namespace
}  // namespace fedhpc
