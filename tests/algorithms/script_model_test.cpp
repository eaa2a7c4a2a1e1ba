#include "fedhpc/models/script_model.hpp"

#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/IListRef.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include "fedhpc/algorithms/algorithm.hpp"
#include "fedhpc/comm/session.hpp"
#include "fedhpc/models/description.hpp"

#include "fixtures/resumed_run.hpp"
#include "fixtures/temporary_folder.hpp"
#include "fixtures/tiny_run.hpp"

// A TorchScript file trains as the family of the same network does, on any ranks and in any blocks.
namespace fedhpc::testing {
namespace {

namespace jit = torch::jit;

const char* const kPlain = R"(
def forward(self, x):
    h = torch.relu(torch.matmul(x, self.fc1.weight.t()) + self.fc1.bias)
    return torch.matmul(h, self.fc2.weight.t()) + self.fc2.bias
)";

const char* const kWithState = R"(
def forward(self, x):
    h = torch.relu(torch.matmul(x, self.fc1.weight.t()) + self.fc1.bias)
    if self.training:
        self.mean.mul_(0.9).add_(0.1 * h.detach().mean(0))
        self.count.add_(1)
    h = torch.dropout(h - self.mean, 0.4, self.training)
    return torch.matmul(h, self.fc2.weight.t()) + self.fc2.bias
)";

const char* const kShared = R"(
def forward(self, x):
    h = torch.tanh(torch.matmul(x, self.fc1.weight) + torch.matmul(x, self.again))
    return torch.matmul(h, self.fc2.weight.t()) + self.fc2.bias
)";

jit::Module module_of(const std::string& name) {
  jit::Module module(name);
  if (!module.hasattr("training"))
    module.register_attribute("training", c10::BoolType::get(), true);
  return module;
}

/// As torch.nn.Parameter has it.
Tensor trainable(Tensor tensor) { return tensor.requires_grad_(true); }

jit::Module linear_module(const Tensor& weight, const Tensor& bias) {
  jit::Module module = module_of("Linear");
  module.register_parameter("weight", trainable(weight), /*is_buffer=*/false);
  module.register_parameter("bias", trainable(bias), /*is_buffer=*/false);
  return module;
}

std::string saved(const jit::Module& module) {
  static const testing_support::TemporaryFolder folder;
  static int count = 0;
  const std::string path = folder.path(concat(count++, ".pt"));
  module.save(path);
  return path;
}

/// A network 8-6-4 with the weights of the row, saved.
std::string saved(const char* forward, const Rows& row) {
  const auto value = [&](const std::string& name) {
    const Field& field = row.layout->field(name);
    return row.values[0].narrow(0, field.offset, field.size).view(field.shape).clone();
  };
  jit::Module module = module_of("Net");
  const Tensor weight = forward == kShared ? at::randn({8, 6}, at::kDouble) : value("fc1.weight");
  module.register_module("fc1", linear_module(weight, value("fc1.bias")));
  module.register_module("fc2", linear_module(value("fc2.weight"), value("fc2.bias")));
  if (forward == kShared)
    module.register_parameter("again", trainable(weight), /*is_buffer=*/false);
  if (forward == kWithState) {
    module.register_buffer("mean", at::zeros({6}, at::kDouble));
    module.register_buffer("count", at::zeros({}, at::kLong));
  }
  module.define(forward);
  return saved(module);
}

/// Eight characters of five kinds: a table, a norm over all of its values, an LSTM whose forward
/// takes a list of its parameters, as torch's does, and a linear layer.
std::string saved_sequence_network() {
  const auto tensor = [](const Shape& shape) { return trainable(at::randn(shape, at::kDouble)); };
  jit::Module table = module_of("Embedding");
  table.register_parameter("weight", tensor({5, 8}), /*is_buffer=*/false);
  jit::Module norm = module_of("LayerNorm");
  norm.register_parameter("weight", tensor({8, 8}), /*is_buffer=*/false);
  norm.register_parameter("bias", tensor({8, 8}), /*is_buffer=*/false);
  jit::Module rnn = module_of("LSTM");
  c10::List<Tensor> weights;
  for (const char* name : {"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"}) {
    const std::size_t n = weights.size();
    weights.push_back(tensor(n == 0 ? Shape{24, 8} : n == 1 ? Shape{24, 6} : Shape{24}));
    rnn.register_parameter(name, weights.get(n), /*is_buffer=*/false);
  }
  rnn.register_attribute("_flat_weights", c10::ListType::ofTensors(), weights);
  jit::Module module = module_of("Net");
  module.register_module("embed", table);
  module.register_module("norm", norm);
  module.register_module("rnn", rnn);
  module.register_module("fc", linear_module(tensor({4, 48}), tensor({4})));
  module.define(R"(
def forward(self, x):
    h = torch.embedding(self.embed.weight, x.to(4))
    h = torch.layer_norm(h, [8, 8], self.norm.weight, self.norm.bias, 1e-5, False)
    z = h.new_zeros([1, x.size(0), 6])
    h = torch.lstm(h, [z, z], self.rnn._flat_weights, True, 1, 0.0, False, False, True)[0]
    return torch.matmul(h.flatten(1), self.fc.weight.t()) + self.fc.bias
)");
  return saved(module);
}

std::unique_ptr<Model> family() {
  ModelOptions dnn;
  dnn.hidden = {6};
  return make_model(dnn, {8}, 4);
}

Rows initial_rows(const Model& model) {
  return {initial_row(*model.layout(), 5, at::kDouble), model.layout()};
}

Keys with_script(const std::string& path, Keys changes = {}) {
  changes.insert({{"model.name", "file"}, {"model.file", path}, {"model.backend", "autograd"}});
  Keys keys = tiny_keys(changes);
  keys.erase("model.hidden");
  return keys;
}

/// What three clients' batches of five give by a model: the logits, and what takes the gradients.
struct Computed {
  Tensor logits;
  Tensor sink;
};

Computed compute(const Model& model, const Tensor& rows, const GradientSink& like) {
  static constexpr std::array<std::int64_t, 3> kClients{0, 1, 2};
  Activations stack = model.make_activations(3, 5, rows.options(), Use::Training);
  stack.draws.clients = kClients;
  const auto numbers = [](const Tensor& of, double step) {
    const Tensor flat = of.view({-1});
    for (std::int64_t i = 0; i < flat.numel(); ++i)
      flat[i] = std::sin(step * static_cast<double>(i));
  };
  numbers(stack.input(), 0.7);
  model.forward(rows, stack);
  numbers(stack.logit_gradient(), 1.3);
  GradientSink sink = like;
  sink.rows = rows.clone();
  model.backward(rows, stack, sink);
  return {stack.logits().clone(), sink.rows};
}

TEST(ScriptModel, ComputesWhatTheFamilyComputes) {
  const std::unique_ptr<Model> dnn = family();
  const Rows initial = initial_rows(*dnn);
  const std::unique_ptr<Model> script = load_script_model(saved(kPlain, initial), {8});
  ASSERT_EQ(script->layout()->size(), dnn->layout()->size());
  for (std::size_t f = 0; f < dnn->layout()->fields().size(); ++f) {
    const Field& one = script->layout()->fields()[f];
    const Field& other = dnn->layout()->fields()[f];
    EXPECT_EQ(one.name, other.name);
    EXPECT_EQ(one.shape, other.shape);
    EXPECT_EQ(one.tags, other.tags) << one.name;
  }
  EXPECT_TRUE(script->weights_of_file().equal(initial.values));
  EXPECT_FALSE(script->has_embedding());
  Tensor rows = initial.values.repeat({3, 1});
  for (std::int64_t c = 0; c < 3; ++c) rows[c].mul_(1 + 0.2 * static_cast<double>(c));
  for (const GradientSink& sink :
       {GradientSink{.rows = {}, .scale = 1, .keep = 0},
        GradientSink{.rows = {}, .scale = -0.3, .keep = 1},
        GradientSink{.rows = {}, .scale = 2, .keep = 0.5},
        GradientSink{.rows = {}, .scale = -0.3, .keep = 1, .columns = {.with = Tag::Head}},
        GradientSink{.rows = {}, .scale = -0.3, .keep = 1, .columns = {.without = Tag::Head}}}) {
    const Computed one = compute(*script, rows, sink);
    const Computed other = compute(*dnn, rows, sink);
    EXPECT_LT(one.logits.sub(other.logits).abs().max().item<double>(), 1e-12);
    EXPECT_LT(one.sink.sub(other.sink).abs().max().item<double>(), 1e-12);
    EXPECT_GT(one.sink.sub(rows).abs().max().item<double>(), 1e-3);
  }
}

TEST(ScriptModel, AParameterInTwoPlacesIsOneFieldAndItsGradientsAreAdded) {
  const std::unique_ptr<Model> dnn = family();
  const std::unique_ptr<Model> script = load_script_model(saved(kShared, initial_rows(*dnn)), {8});
  EXPECT_EQ(script->layout()->size(), 48 + 6 + 24 + 4);
  const Tensor rows = script->weights_of_file().repeat({3, 1});
  const Tensor gradients = compute(*script, rows, {.rows = {}, .scale = 1, .keep = 0}).sink;
  // The sum of logits times their gradients, by differences.
  const auto sum = [&](double by) {
    const Tensor moved = rows.clone();
    moved.select(1, 0).add_(by);
    const Computed at = compute(*script, moved, {.rows = {}, .scale = 1, .keep = 0});
    Tensor weights = at::empty_like(at.logits);
    const Tensor flat = weights.view({-1});
    for (std::int64_t i = 0; i < flat.numel(); ++i)
      flat[i] = std::sin(1.3 * static_cast<double>(i));
    return at.logits.mul(weights).sum({1, 2});
  };
  const Tensor slope = (sum(1e-5) - sum(-1e-5)) / 2e-5;
  EXPECT_LT(slope.sub(gradients.select(1, 0)).abs().max().item<double>(), 1e-8);
  EXPECT_GT(slope.abs().min().item<double>(), 1e-3);
}

TEST(ScriptModel, OfATableANormAndAnLstmIsWhatTheirDescriptionIs) {
  ModelDescription description;
  for (const char* line :
       {"input shape=8", "embedding rows=5 columns=8 inputs=0 parameters=embed.weight",
        "layer_norm dims=0,1 inputs=1 parameters=norm.weight,norm.bias",
        "lstm hidden=6 inputs=2 parameters=rnn.weight_ih_l0,rnn.weight_hh_l0,rnn.bias_ih_l0,"
        "rnn.bias_hh_l0",
        "reshape shape=48 inputs=3", "linear out=4 inputs=4 parameters=fc.weight,fc.bias"}) {
    description.add(line_of(line));
  }
  const std::unique_ptr<Model> described = build_model(description, "a test");
  const std::unique_ptr<Model> script =
      load_script_model(saved_sequence_network(), {8}, at::kDouble);
  const Layout& one = *script->layout();
  const Layout& other = *described->layout();
  ASSERT_EQ(one.fields().size(), other.fields().size());
  for (std::size_t f = 0; f < other.fields().size(); ++f) {
    EXPECT_EQ(one.fields()[f].name, other.fields()[f].name);
    EXPECT_EQ(one.fields()[f].shape, other.fields()[f].shape);
    EXPECT_EQ(one.fields()[f].tags, other.fields()[f].tags) << other.fields()[f].name;
  }
  for (std::int64_t layers = 0; layers < 5; ++layers) {
    EXPECT_EQ(first_of_top(one, layers), first_of_top(other, layers)) << layers;
  }
  EXPECT_FALSE(one.needs_pairs());
  // The same numbers, too: eight characters of each of three clients' two samples.
  static constexpr std::array<std::int64_t, 3> kClients{0, 1, 2};
  Tensor rows = script->weights_of_file().repeat({3, 1});
  for (std::int64_t c = 0; c < 3; ++c) rows[c].mul_(1 + 0.2 * static_cast<double>(c));
  const auto gradients = [&](const Model& model) {
    Activations stack = model.make_activations(3, 2, rows.options(), Use::Training);
    stack.draws.clients = kClients;
    stack.input().copy_(at::arange(48, at::kDouble).view({3, 2, 8}).fmod(5));
    model.forward(rows, stack);
    stack.logit_gradient().copy_(stack.logits());
    const Tensor sink = at::zeros_like(rows);
    model.backward(rows, stack, {.rows = sink, .scale = 1, .keep = 0});
    return sink;
  };
  const Tensor found = gradients(*script);
  EXPECT_LT(found.sub(gradients(*described)).abs().max().item<double>(), 1e-10);
  for (const Field& field : one.fields()) {
    EXPECT_GT(found.narrow(1, field.offset, field.size).abs().max().item<double>(), 1e-6)
        << field.name;
  }
}

TEST(ScriptModel, BuffersMoveInTrainingAlone) {
  const std::unique_ptr<Model> dnn = family();
  const std::unique_ptr<Model> script =
      load_script_model(saved(kWithState, initial_rows(*dnn)), {8});
  EXPECT_EQ(script->layout()->count(Tag::Buffer), 6) << "the count of batches is no field";
  EXPECT_FALSE(script->layout()->needs_pairs());
  for (const Use use : {Use::Evaluation, Use::Training}) {
    const Tensor rows = script->weights_of_file().repeat({2, 1});
    const Tensor before = rows.clone();
    Activations stack = script->make_activations(2, 5, rows.options(), use);
    stack.input().fill_(0.5);
    const std::vector<std::int64_t> clients{4, 9};
    stack.draws = {.seed = 1, .round = 1, .clients = clients};
    script->forward(rows, stack);
    EXPECT_EQ(rows.equal(before), use == Use::Evaluation);
    for (const auto& [begin, end] : script->layout()->ranges(Tag::Trainable)) {
      EXPECT_TRUE(rows.narrow(1, begin, end - begin).equal(before.narrow(1, begin, end - begin)));
    }
  }
}

TEST(ScriptModel, TrainsAsTheFamilyByEveryMethod) {
  const std::unique_ptr<Communicator> comm = world_communicator(60);
  const std::string path = saved(kPlain, initial_rows(*family()));
  for (const std::string& method : algorithm_names()) {
    Keys keys = tiny_keys_of(method, {{"run.rounds", "2"}, {"train.block", "3"}});
    if (make_algorithm(method, "test")->traits().reads_embeddings) continue;
    const TinyResult expected = run(keys, *comm);
    keys.insert({{"model.file", path}, {"model.backend", "autograd"}});
    keys["model.name"] = "file";
    const TinyResult actual = run(keys, *comm);
    EXPECT_LT(distance(actual.global, expected.global), 1e-8) << method;
    EXPECT_LT(distance(actual.personal, expected.personal), 1e-8) << method;
  }
}

TEST(ScriptModel, SameBitsOnAnyRanksInAnyBlocksAndWhenResumed) {
  const std::unique_ptr<Communicator> world = world_communicator(60);
  const std::unique_ptr<Communicator> alone = local_communicator();
  const std::string path = saved(kWithState, initial_rows(*family()));
  for (const std::string method : {"fedavg", "ditto", "perfedavg"}) {
    Keys keys = with_script(path, {{"algorithm.name", method},
                                   {"run.reproducible", "true"},
                                   {"run.rounds", "4"},
                                   {"train.momentum", "0.5"}});
    const TinyResult expected = run(keys, *alone);
    for (const std::string width : {"1", "3", "8"}) {
      keys["train.block"] = width;
      expect_same_bits(run(keys, *world), expected, *world);
    }
    expect_same_bits(run_in_two_parts(keys, 2, *world, *world), expected, *world);
    keys["run.seed"] = "6";
    EXPECT_GT(distance(run(keys, *alone).global, expected.global), 1e-6) << "draws count";
  }
}

TEST(ScriptModel, OtherFilesAreRefusedInOneSentence) {
  const std::string path = saved(kPlain, initial_rows(*family()));
  const auto refusal = [&](const std::string& file, const Shape& shape) {
    try {
      load_script_model(file, shape);
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(refusal(path, {7}).find("cannot be run on samples of [7]"), std::string::npos);
  EXPECT_NE(refusal("/dev/null", {8}).find("is no TorchScript file"), std::string::npos);
  for (const std::string& text : {refusal(path, {7}), refusal("/dev/null", {8})}) {
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace fedhpc::testing
