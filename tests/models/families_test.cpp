#include <array>
#include <cmath>

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "fedhpc/core/rng.hpp"
#include "fedhpc/models/description.hpp"
#include "fedhpc/models/model.hpp"

// Sizes, names, initial weights and refusals of the families.
namespace fedhpc {
namespace {

const std::vector<std::int64_t> kGrey{1, 28, 28};
const std::vector<std::int64_t> kColour{3, 32, 32};

ModelOptions named(const std::string& name) {
  ModelOptions options;
  options.name = name;
  return options;
}

std::int64_t trainable(const ModelOptions& options, const std::vector<std::int64_t>& shape,
                       const Outputs& outputs) {
  return make_model(options, shape, outputs)->layout()->count(Tag::Trainable);
}

std::int64_t buffers(const ModelOptions& options, const std::vector<std::int64_t>& shape) {
  return make_model(options, shape, 10)->layout()->count(Tag::Buffer);
}

TEST(Families, CountParametersOfLinearOnes) {
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

TEST(Families, CountParametersOfThoseOfSequences) {
  ModelOptions options = named("lstm_leaf");
  // An embedding of 80 x 8, LSTM layers of 8 and 256 to 256 with two biases each, 256 to 80.
  const std::int64_t cells = 1024 * (8 + 256 + 2) + 1024 * (256 + 256 + 2);
  EXPECT_EQ(trainable(options, {80}, 80), 80 * 8 + cells + 257 * 80);
  options.vocabulary = 90;
  options.places = Places::All;
  const auto all = make_model(options, {80}, {80, 80});
  EXPECT_EQ(all->layout()->size(), 90 * 8 + cells + 257 * 80);
  EXPECT_EQ(all->classes(), 80 * 80);
  EXPECT_FALSE(all->draws());

  options = named("transformer");
  const std::int64_t attention = 4 * (96 * 96 + 96);
  const std::int64_t feed_forward = 96 * 1536 * 2 + 1536 + 96;
  EXPECT_EQ(trainable(options, {20}, {10004, 20}),
            2 * 10004 * 96 + 3 * (attention + feed_forward + 4 * 96));
  const auto model = make_model(options, {20}, {50, 20});
  EXPECT_EQ(model->classes(), 20 * 50);
  EXPECT_TRUE(model->draws());
  EXPECT_EQ(model->layout()->count(Tag::Head), 50 * 96);
  EXPECT_EQ(model->layout()->field("layers.2.self_attn.in_proj_weight").shape, (Shape{288, 96}));
  options.dropout = 0;
  EXPECT_FALSE(make_model(options, {20}, {50, 20})->draws());
}

TEST(Families, OfSequencesDropAtRandomWhenTheyTrain) {
  ModelOptions options = named("transformer");
  options.embedding = 8;
  options.heads = 2;
  options.feed_forward = 9;
  const auto model = make_model(options, {6}, {5, 6});
  const Tensor rows = initial_row(*model->layout(), 1, at::kDouble).repeat({2, 1});
  static constexpr std::array<std::int64_t, 2> kIds{3, 8};
  const auto outputs = [&](Use use, std::int64_t round) {
    Activations activations = model->make_activations(2, 3, at::kDouble, use);
    activations.draws = {.seed = 1, .round = round, .clients = kIds};
    activations.input().copy_(at::ones({2, 3, 6}));
    model->forward(rows, activations);
    return activations.logits().clone();
  };
  const Tensor first = outputs(Use::Training, 1);
  EXPECT_TRUE(outputs(Use::Training, 1).equal(first));
  EXPECT_FALSE(outputs(Use::Training, 2).equal(first));
  EXPECT_FALSE(first[0].equal(first[1]));  // equal rows and samples, other clients
  const Tensor scored = outputs(Use::Evaluation, 1);
  EXPECT_TRUE(scored[0].equal(scored[1]));
}

TEST(Families, OfSequencesRefuseWhatDoesNotFit) {
  const auto message = [](const ModelOptions& options, const Shape& shape,
                          const Outputs& outputs = 5) -> std::string {
    try {
      make_model(options, shape, outputs);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message(named("lstm_leaf"), kGrey).find("one row of whole numbers"), std::string::npos);
  EXPECT_NE(message(named("lstm_leaf"), {20}, 1).find("model.vocabulary = auto"),
            std::string::npos);
  ModelOptions options = named("transformer");
  options.heads = 7;
  EXPECT_NE(message(options, {20}, {5, 20}).find("model.heads is 7"), std::string::npos);
  EXPECT_NE(message(options, {20}).find("at 20 places of a sample, the data's targets ask for 1"),
            std::string::npos);
  options = named("lstm_leaf");
  options.padding = 5;
  EXPECT_NE(message(options, {20}).find("model.padding is 5"), std::string::npos);
  options.padding = 1;
  EXPECT_NE(message(options, {20}, {5, 20}).find("at 1 place of a sample"), std::string::npos);
  options.places = Places::All;
  EXPECT_NE(message(options, {20}, {5, 19}).find("at 20 places"), std::string::npos);
}

TEST(Families, UsePyTorchNamesInOrder) {
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

TEST(Families, DrawInitialWeightsPerParameter) {
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

TEST(Families, CountParametersOfConvolutionalOnes) {
  EXPECT_EQ(trainable(named("cnn4"), kGrey, 10), 390880);
  EXPECT_EQ(trainable(named("cnn4"), kColour, 10), 399136);
  EXPECT_EQ(buffers(named("cnn4"), kGrey), 960);
  EXPECT_EQ(trainable(named("cnn8"), kColour, 10), 1183456);
  EXPECT_EQ(trainable(named("cnn8"), kColour, 100), 1275616);
  EXPECT_EQ(trainable(named("cnn10"), kColour, 10), 4719328);
  EXPECT_EQ(trainable(named("cnn10"), kColour, 100), 4765408);
}

TEST(Families, CountParametersOfVggs) {
  ModelOptions vgg8 = named("vgg8");
  EXPECT_EQ(trainable(vgg8, kColour, 10), 1114122);
  EXPECT_EQ(buffers(vgg8, kColour), 1472);
  vgg8.norm = NormChoice::None;
  EXPECT_EQ(trainable(vgg8, kColour, 10), 1112650);
  ModelOptions sfedhp = named("vgg_sfedhp");
  EXPECT_EQ(trainable(sfedhp, kColour, 10), 280074);
  sfedhp.norm = NormChoice::None;
  EXPECT_EQ(trainable(sfedhp, kColour, 10), 279338);
}

TEST(Families, CountParametersOfResnets) {
  ModelOptions options = named("resnet18");
  EXPECT_EQ(trainable(options, kColour, 10), 11173962);
  EXPECT_EQ(trainable(options, kColour, 100), 11220132);
  EXPECT_EQ(trainable(options, {3, 64, 64}, 200), 11271432);
  EXPECT_EQ(buffers(options, kColour), 9600);
  options.stem = Stem::Imagenet;
  EXPECT_EQ(trainable(options, kColour, 10), 11181642);
  EXPECT_EQ(trainable(options, kColour, 100), 11227812);
  EXPECT_EQ(trainable(options, {3, 64, 64}, 200), 11279112);
  options = named("resnet9");
  EXPECT_EQ(trainable(options, kColour, 10), 6575370);
  EXPECT_EQ(trainable(options, kColour, 100), 6621540);
  EXPECT_EQ(trainable(options, {3, 64, 64}, 200), 6672840);
  EXPECT_EQ(buffers(options, kColour), 4480);
  options.bias = BiasChoice::False;
  EXPECT_EQ(trainable(options, kColour, 10), 6575370 - 2240);
}

TEST(Families, TakeGroupNormInPlaceOfBatchNorm) {
  ModelOptions options = named("resnet18");
  options.norm = NormChoice::Group;
  EXPECT_EQ(trainable(options, kColour, 10), 11173962);  // as with batch norm
  EXPECT_EQ(buffers(options, kColour), 0);
  const auto layout = make_model(options, kColour, 10)->layout();
  EXPECT_EQ(layout->fields()[1].name, "bn1.weight");
  EXPECT_EQ(layout->fields()[2].name, "bn1.bias");
  EXPECT_EQ(layout->fields()[3].name, "layer1.0.conv1.weight");
  EXPECT_EQ(layout->count(Tag::Norm), 9600);
  options.groups = 3;
  try {
    make_model(options, kColour, 10);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("model.groups = 3 does not divide the 64 channels"),
              std::string::npos);
  }
}

TEST(Families, NameImageParametersAsPyTorchDoes) {
  const auto layout = make_model(named("cnn2"), {1, 8, 8}, 3)->layout();
  std::vector<std::string> names;
  for (const Field& field : layout->fields()) names.push_back(field.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"conv1.weight", "bn1.weight", "bn1.bias", "bn1.running_mean",
                                      "bn1.running_var", "conv2.weight", "bn2.weight", "bn2.bias",
                                      "bn2.running_mean", "bn2.running_var", "fc1.weight"}));
  EXPECT_EQ(layout->field("conv2.weight").shape, (std::vector<std::int64_t>{16, 8, 3, 3}));
  EXPECT_EQ(layout->count(Tag::Head), 3 * 16 * 2 * 2);
  EXPECT_EQ(layout->count(Tag::Norm), 2 * (8 + 16));

  const auto resnet = make_model(named("resnet18"), kColour, 10)->layout();
  names.clear();
  for (const Field& field : resnet->fields()) {
    if (field.name.rfind("layer2.0.", 0) == 0 && !has(field.tags, Tag::Norm | Tag::Buffer)) {
      names.push_back(field.name);
    }
  }
  EXPECT_EQ(names, (std::vector<std::string>{"layer2.0.conv1.weight", "layer2.0.conv2.weight",
                                             "layer2.0.downsample.0.weight"}));
  EXPECT_EQ(resnet->fields().back().name, "fc.bias");
}

TEST(Families, DrawInitialWeightsByEveryRule) {
  const auto layout = make_model(named("cnn2"), kColour, 10)->layout();
  const auto part = [&](InitRule rule, const std::string& name) {
    const Field& field = layout->field(name);
    return initial_row(*layout, 3, at::kDouble, rule)[0].narrow(0, field.offset, field.size);
  };
  const double fan_in = 8 * 9;
  EXPECT_LE(part(InitRule::Torch, "conv2.weight").abs().max().item<double>(),
            1 / std::sqrt(fan_in));
  EXPECT_NEAR(part(InitRule::Normal01, "conv2.weight").std().item<double>(), 0.01, 1e-3);
  EXPECT_NEAR(part(InitRule::KaimingOut, "conv2.weight").std().item<double>(),
              std::sqrt(2.0 / (16 * 9)), 0.01);
  for (const InitRule rule : {InitRule::Torch, InitRule::Normal01, InitRule::KaimingOut}) {
    for (const std::string norm : {"bn1", "bn2"}) {
      EXPECT_TRUE(part(rule, norm + ".weight").eq(1).all().item<bool>());
      EXPECT_TRUE(part(rule, norm + ".bias").eq(0).all().item<bool>());
      EXPECT_TRUE(part(rule, norm + ".running_mean").eq(0).all().item<bool>());
      EXPECT_TRUE(part(rule, norm + ".running_var").eq(1).all().item<bool>());
    }
  }
}

TEST(Families, DrawRecurrentLayersByTheFansOfEachMatrix) {
  ModelDescription description;
  for (const char* line :
       {"input shape=28,28", "lstm hidden=256 inputs=0 parameters=w,u,b,c",
        "reshape shape=7168 inputs=1", "linear out=10 inputs=2 parameters=fc.weight,fc.bias"}) {
    description.add(line_of(line));
  }
  const LayoutPtr layout = build_model(description, "a test")->layout();
  const auto largest = [&](InitRule rule, const std::string& name) {
    const Field& field = layout->field(name);
    const Tensor row = initial_row(*layout, 3, at::kDouble, rule)[0];
    return row.narrow(0, field.offset, field.size).abs().max().item<double>();
  };
  for (const InitRule rule : {InitRule::Xavier, InitRule::Keras}) {
    EXPECT_NEAR(largest(rule, "w"), std::sqrt(6.0 / (28 + 1024)), 1e-4);   // 0.0755
    EXPECT_NEAR(largest(rule, "u"), std::sqrt(6.0 / (256 + 1024)), 1e-4);  // 0.0685
  }
  for (const char* name : {"w", "u", "b"}) {
    EXPECT_NEAR(largest(InitRule::Torch, name), 1.0 / 16, 1e-3) << name;
  }
}

TEST(Families, RefuseWhatDoesNotFit) {
  const auto message = [](ModelOptions options, std::vector<std::int64_t> shape) -> std::string {
    try {
      make_model(options, shape, 10);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  for (const std::string name :
       {"cnn2", "cnn_dropout", "cnn_leaf", "vgg8", "resnet9", "resnet18"}) {
    EXPECT_NE(message(named(name), {64}).find("model.name = " + name), std::string::npos);
    EXPECT_NE(message(named(name), {64}).find("choose"), std::string::npos);
  }
  for (const std::string name : {"cnn4", "cnn8", "cnn10", "vgg8", "vgg_sfedhp"}) {
    EXPECT_NE(message(named(name), {1, 8, 8}).find("8 x 8"), std::string::npos) << name;
    ModelOptions plain = named(name);
    plain.norm = NormChoice::None;
    EXPECT_NE(message(plain, {1, 8, 8}).find("8 x 8"), std::string::npos) << name;
  }
  EXPECT_NE(message(named("cnn10"), kGrey).find("28 x 28"), std::string::npos);
  EXPECT_NE(message(named("resnet9"), {3, 16, 24}).find("square"), std::string::npos);
  ModelOptions wide = named("cnn4");
  wide.width = 1e6;
  EXPECT_NE(message(wide, kGrey).find("model.width"), std::string::npos);
  EXPECT_EQ(message(named("cnn4"), {1, 16, 16}), "");
}

TEST(Rows, ColumnsAreAddedByTag) {
  auto layout = std::make_shared<Layout>();
  layout->add("a", {2}, 2, Tag::Trainable);
  layout->add("b", {1}, 1, Tag::Trainable | Tag::Norm);
  layout->add("mean", {2}, 2, Tag::Buffer);
  layout->add("c", {1}, 1, Tag::Trainable);
  EXPECT_EQ(layout->ranges(Tag::Trainable), (ColumnRanges{{0, 3}, {5, 6}}));
  const Tensor rows = at::zeros({2, 6}, at::kDouble);
  const Tensor ones = at::zeros({2, 6}, at::kDouble).add(1);
  add_columns_(rows, ones, 3, *layout, Tag::Trainable);
  EXPECT_EQ(rows.sum().item<double>(), 2 * 3 * 4);
  EXPECT_EQ(rows[1][3].item<double>(), 0);
  add_difference_(rows, rows, ones, -1, *layout, Tag::Norm);
  EXPECT_EQ(rows[1][2].item<double>(), 1);  // 3 - (3 - 1)
  EXPECT_EQ(rows[1][1].item<double>(), 3);
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
