#include <cmath>

#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "fedhpc/io/hdf5.hpp"
#include "fedhpc/models/description.hpp"
#include "fedhpc/models/model_file.hpp"

#include "data/data_support.hpp"

// What descriptions of layers are refused, and what drawn rows hold.
namespace fedhpc {
namespace {

std::unique_ptr<Model> built(const std::vector<std::string>& lines) {
  ModelDescription description{.lines = {}, .constants = {{"c", at::ones({3}, at::kDouble)}}};
  for (const std::string& line : lines) description.add(line_of(line));
  return build_model(description, "model.file 'net.h5'");
}

/// The message about line 2, which stands after a linear layer with a value of shape 4,6.
std::string refusal(const std::string& line) {
  try {
    built({"input shape=4,6", "linear out=6 inputs=0 parameters=w", line + " name=m",
           "add inputs=1,2"});
  } catch (const DataError& error) {
    const std::string message = error.what();
    const std::string begin =
        concat("model.file 'net.h5', layer 2 (", line.substr(0, line.find(' ')), " 'm'): ");
    EXPECT_EQ(message.substr(0, begin.size()), begin);
    return message.substr(std::min(begin.size(), message.size()));
  }
  return "";
}

TEST(LayerLines, AreRefusedWithASentence) {
  const std::vector<std::pair<std::string, std::string>> lines{
      {"silu inputs=1 slope=1", "it has no key 'slope'"},
      {"silu inputs=0,1", "it has 2 inputs, it needs 1"},
      {"gelu tanh=2 inputs=1", "'tanh' is 2; allowed: a whole number from 0 to 1"},
      {"leaky_relu slope=-1 inputs=1", "'slope' is -1; allowed: numbers from 0 on"},
      {"elu alpha=-0.5 inputs=1", "'alpha' is -0.5; allowed: numbers from 0 on"},
      {"softplus beta=0 inputs=1", "'beta' is 0; allowed: other numbers"},
      {"hardtanh low=1 inputs=1", "it needs the keys 'low' and 'high'"},
      {"hardtanh low=1 high=1 inputs=1", "'low' is 1 and 'high' is 1; 'low' has to be smaller"},
      {"power inputs=1", "the key 'exponent' is missing"},
      {"power exponent=0 inputs=1", "'exponent' is 0; allowed: other numbers"},
      {"dropout inputs=1", "the key 'p' is missing"},
      {"dropout p=1.5 inputs=1", "'p' is 1.5; allowed: numbers from 0 to 1"},
      {"embedding rows=4 inputs=1 parameters=t", "the key 'columns' is missing"},
      {"embedding rows=4 columns=2 padding=4 inputs=1 parameters=t",
       "'padding' is 4; allowed: a whole number from -1 to 3"},
      {"embedding rows=4 columns=2 inputs=1", "it names 0 parameters, it needs 1"},
      {"add inputs=1", "it has 1 inputs, it needs 2"},
      {"parameter shape=4 inputs=1 parameters=p", "it has 1 inputs, it needs 0"},
      {"parameter shape=4", "it names 0 parameters, it needs 1"},
      {"constant shape=3", "it names no constant of the description"},
      {"constant shape=4 constant=c", "its constant has 3 numbers, the shape [4] has 4"},
      {"softmax dim=2 inputs=1", "'dim' is 2; allowed: a whole number from 0 to 1"},
      {"log_softmax inputs=1", "the key 'dim' is missing"},
      {"mean dims=0,0 inputs=1", "'dims' names dimension 0 twice"},
      {"sum dims=-1 inputs=1", "'dims' is -1; allowed: a whole number from 0 to 1"},
      {"concat dim=0 inputs=1", "it has 1 inputs, it needs 2"},
      {"slice dim=0 start=4 end=5 inputs=1", "'start' is 4; allowed: a whole number from 0 to 3"},
      {"slice dim=0 start=2 end=2 inputs=1", "'end' is 2; allowed: a whole number from 3 to 4"},
      {"slice dim=0 start=0 end=2 step=0 inputs=1", "'step' is 0"},
      {"permute dims=1 inputs=1", "'dims' has 1 numbers, it needs 2"},
      {"expand shape=4,7 inputs=1", "a value of shape [4, 6] does not expand to [4, 7]"},
      {"relu inputs=1 parameters=v", "it has no parameters"},
      {"relu inputs=1 constant=c", "it has no constant"},
      {"matmul inputs=1,1", "values of shapes [4, 6] and [4, 6] have no product"},
  };
  for (const auto& [line, what] : lines) {
    SCOPED_TRACE(line);
    const std::string message = refusal(line);
    EXPECT_EQ(message.substr(0, what.size()), what);
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

TEST(LayerLines, OfTwoShapesThatDoNotFitAreRefused) {
  for (const std::string op : {"add", "subtract", "multiply", "concat dim=0", "matmul"}) {
    SCOPED_TRACE(op);
    const std::vector<std::string> lines{"input shape=4,6", "linear out=6 inputs=0 parameters=w",
                                         "linear out=5 inputs=0 parameters=v", op + " inputs=1,2"};
    EXPECT_THROW(built(lines), DataError);
  }
}

TEST(LayerLines, OfALinearLayerAndItsReluAreOneLayer) {
  const auto nodes_of = [](const std::string& relu, const std::string& next) {
    std::vector<std::size_t> nodes;
    const auto model = built({"input shape=6", "linear out=6 inputs=0 parameters=w,b", relu, next,
                              "linear out=2 inputs=3 parameters=h"});
    for (const LayerSummary& layer : model->layers()) nodes.push_back(layer.node);
    return nodes;
  };
  using Nodes = std::vector<std::size_t>;
  EXPECT_EQ(nodes_of("relu inputs=1", "silu inputs=2"), (Nodes{0, 1, 0, 2, 3}));
  // Somebody else reads what the ReLU is given.
  EXPECT_EQ(nodes_of("relu inputs=1", "add inputs=1,2"), (Nodes{0, 1, 2, 3, 4}));
  EXPECT_EQ(nodes_of("tanh inputs=1", "silu inputs=2"), (Nodes{0, 1, 2, 3, 4}));
}

TEST(Embedding, RefusesWhatIsNoRow) {
  const auto model =
      built({"input shape=2", "embedding rows=3 columns=2 inputs=0 parameters=t name=words"});
  const Tensor rows = at::ones({1, model->layout()->size()}, at::kFloat);
  const Activations a = model->make_activations(1, 1, at::kFloat, Use::Evaluation);
  const std::vector<std::pair<double, std::string>> wrong{
      {-1.0, ""},
      {std::nan(""), ""},
      {3.0, ", or more with a larger model.vocabulary (in a model file: rows)"},
      {0.5, ", as data.standardize = none leaves them"}};
  for (const auto& [number, remedy] : wrong) {
    a.input().copy_(at::tensor({2.0, number}).view({1, 1, 2}));
    try {
      model->forward(rows, a);
      ADD_FAILURE() << number;
    } catch (const DataError& error) {
      EXPECT_EQ(std::string(error.what()),
                concat("model.file 'net.h5', layer 1 (embedding 'words'): the input holds ", number,
                       "; allowed: whole numbers from 0 to 2", remedy));
    }
  }
  a.input().copy_(at::tensor({2.0, 0.0}).view({1, 1, 2}));
  model->forward(rows, a);
}

TEST(ModelFile, HasNoMoreLinesThanDrawsTellApart) {
  const testing_support::TemporaryFolder folder;
  const auto refusal_of = [&](std::size_t lines) {
    const std::string path = folder.path("net.h5");
    {
      const h5::Handle file = h5::open_file(path, h5::Mode::Create);
      h5::write_attribute(file, "fedhpc_model", std::int64_t{1});
      h5::write_texts(file, "layers", std::vector<std::string>(lines, "none x"));
    }
    return testing_support::message_of<DataError>([&] { read_model_file(path); });
  };
  const std::string message = " layers, expected at most 65536";
  EXPECT_NE(refusal_of(65537).find("has 65537" + message), std::string::npos);
  EXPECT_NE(refusal_of(65536).find("layer 0: 'x' is not of the form"), std::string::npos);
}

TEST(InitialRow, DrawsTablesAsNormals) {
  const auto model =
      built({"input shape=2", "embedding rows=400 columns=25 padding=3 inputs=0 parameters=t",
             "parameter shape=2,25 parameters=p", "add inputs=1,2"});
  const Layout& layout = *model->layout();
  for (const auto& [rule, deviation] : std::vector<std::pair<InitRule, double>>{
           {InitRule::Torch, 1}, {InitRule::KaimingOut, 1}, {InitRule::Normal01, 0.01}}) {
    const Tensor row = initial_row(layout, 3, at::kDouble, rule)[0];
    const Tensor table = row.narrow(0, layout.field("t").offset, 400 * 25).view({400, 25});
    EXPECT_TRUE(table[3].eq(0).all().item<bool>());
    EXPECT_NEAR(table.std().item<double>(), deviation, 0.05 * deviation);
    EXPECT_NEAR(table.mean().item<double>(), 0, 0.05 * deviation);
    EXPECT_TRUE(row.narrow(0, layout.field("p").offset, 50).eq(0).all().item<bool>());
  }
}

}  // namespace
}  // namespace fedhpc
