#include "fedhpc/factorisations/factor_map.hpp"

#include <cmath>
#include <string>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "fedhpc/core/rng.hpp"
#include "fedhpc/models/model.hpp"

namespace fedhpc {
namespace {

using Sizes = std::vector<std::int64_t>;

LayoutPtr layout_of(const std::string& name, const Sizes& shape, NormChoice norm,
                    std::int64_t classes = 10) {
  ModelOptions options;
  options.name = name;
  options.norm = norm;
  return make_model(options, shape, classes)->layout();
}

FactorisationOptions cp(const Sizes& ranks = {}, double compression = 2) {
  FactorisationOptions options;
  options.name = "cp";
  options.ranks = ranks;
  options.compression = compression;
  options.exclude = {};
  return options;
}

Rows random_rows(std::int64_t count, const LayoutPtr& layout) {
  return {at::randn({count, layout->size()}, at::kDouble), layout};
}

std::string message_of(const FactorisationOptions& options, const LayoutPtr& layout) {
  try {
    const FactorMap map(options, layout);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing thrown";
}

TEST(FactorMap, CountsOfTableI) {
  // Weights by the table's ranks; biases and batch norm are sent as they are.
  const LayoutPtr dnn = layout_of("dnn", {28, 28}, NormChoice::Auto);
  EXPECT_EQ(FactorMap(cp({}, 2), dnn).factors()->size(), 39446 + 110);
  EXPECT_EQ(FactorMap(cp({}, 1.5), dnn).factors()->size(), 52816 + 110);
  EXPECT_EQ(FactorMap(cp({44, 5}), dnn).factors()->size(), 39446 + 110);
  const LayoutPtr plain = layout_of("vgg8", {3, 32, 32}, NormChoice::None);
  const LayoutPtr normed = layout_of("vgg8", {3, 32, 32}, NormChoice::Batch);
  EXPECT_EQ(FactorMap(cp({}, 2), plain).factors()->size(), 555487 + 1258);
  EXPECT_EQ(FactorMap(cp({}, 1.5), plain).factors()->size(), 740276 + 1258);
  // Scale and shift, running mean and variance of 736 channels.
  EXPECT_EQ(FactorMap(cp({}, 2), normed).factors()->size(), 555487 + 1258 + 2944);
  EXPECT_EQ(FactorMap(cp({}, 2), normed).layers(), 8);
}

TEST(FactorMap, LeavesOutWhatDoesNotPass) {
  const LayoutPtr full = layout_of("cnn2", {1, 8, 8}, NormChoice::Batch);
  FactorisationOptions options = cp({2});
  options.exclude = {"last"};
  options.passed = {.with = Tag::Head};
  FactorMap map(options, full);
  std::int64_t passed = 0;
  for (const Field& field : map.factors()->fields()) {
    passed += full->contains(field.name) ? 1 : 0;
    EXPECT_TRUE(!full->contains(field.name) || has(field.tags, Tag::Head)) << field.name;
  }
  EXPECT_EQ(passed, 1) << "the head has no bias";
  std::int64_t others = 0;
  for (const auto& [begin, end] : map.other_columns()) others += end - begin;
  EXPECT_EQ(others, full->size() - full->count(Tag::Head));
  const Rows u = random_rows(3, map.factors());
  const Rows w{at::full({3, full->size()}, 7.0, at::kDouble), full};
  map.expand_(u, w);
  for (const Field& field : full->fields()) {
    const Tensor columns = w.values.narrow(1, field.offset, field.size);
    const bool given = field.shape.size() >= 2 || has(field.tags, Tag::Head);
    EXPECT_EQ(columns.abs().max().item<double>() == 0, !given) << field.name;
  }
}

TEST(FactorMap, ExcludesLayersByPatterns) {
  const LayoutPtr full = layout_of("vgg8", {3, 32, 32}, NormChoice::None);
  const auto layers = [&](const std::vector<std::string>& exclude) {
    FactorisationOptions options = cp({1});
    options.exclude = exclude;
    const FactorMap map(options, full);
    std::vector<std::string> names;
    for (std::int64_t l = 0; l < map.layers(); ++l) names.push_back(map.layer_name(l));
    return names;
  };
  EXPECT_EQ(layers({"conv[!12]", "fc2"}),
            (std::vector<std::string>{"conv1", "conv2", "fc1", "fc3"}));
  EXPECT_THROW(layers({"conv*", "fc?"}), ConfigError) << "nothing is left";
  EXPECT_THROW(layers({"convolution*"}), ConfigError) << "no such layer";
}

TEST(FactorMap, PutsFactorsInThePlaceOfWeights) {
  const LayoutPtr full = layout_of("dnn", {28, 28}, NormChoice::Auto);
  const FactorMap map(cp({44, 5}), full);
  std::vector<std::string> names;
  for (const Field& field : map.factors()->fields()) names.push_back(field.name);
  EXPECT_EQ(names, (std::vector<std::string>{"fc1.A1", "fc1.A2", "fc1.bias", "fc2.A1", "fc2.A2",
                                             "fc2.bias"}));
  EXPECT_EQ(map.factors()->field("fc1.A1").shape, (Sizes{784, 44}));
  EXPECT_EQ(map.factors()->field("fc1.A2").shape, (Sizes{100, 44}));
  EXPECT_TRUE(has(map.factors()->field("fc2.A1").tags, Tag::Head));
  const LayoutPtr kernels = layout_of("cnn2", {1, 8, 8}, NormChoice::Batch);
  const FactorMap of_kernels(cp(), kernels);
  const Sizes shape = kernels->field("conv1.weight").shape;  // [out, in, height, width]
  for (std::size_t n = 1; n <= 4; ++n) {
    const Field& field = of_kernels.factors()->field("conv1.A" + std::to_string(n));
    EXPECT_EQ(field.shape.front(), shape[4 - n]);
  }
}

TEST(FactorMap, ComposesEveryLayerAndPassesTheRest) {
  const LayoutPtr full = layout_of("cnn2", {1, 8, 8}, NormChoice::Batch);
  FactorMap map(cp({}, 1.5), full);
  const Rows u = random_rows(3, map.factors());
  const Rows w = map.expand(u);
  for (const Field& field : full->fields()) {
    const Tensor columns = w.values.narrow(1, field.offset, field.size);
    if (map.factors()->contains(field.name)) {
      const Field& same = map.factors()->field(field.name);
      EXPECT_TRUE(columns.equal(u.values.narrow(1, same.offset, same.size))) << field.name;
      EXPECT_EQ(same.tags, field.tags);
      continue;
    }
    const std::string layer = field.name.substr(0, field.name.find('.'));
    std::vector<Tensor> factors;
    for (std::size_t n = 1; n <= field.shape.size(); ++n) {
      const Field& factor = map.factors()->field(layer + ".A" + std::to_string(n));
      factors.push_back(u.values[2].narrow(0, factor.offset, factor.size).reshape(factor.shape));
    }
    const Tensor expected =
        factors.size() == 2
            ? factors[1].matmul(factors[0].t())
            : at::einsum("wr,hr,ir,or->oihw", {factors[0], factors[1], factors[2], factors[3]});
    EXPECT_LT((columns[2] - expected.reshape({-1})).abs().max().item<double>(), 1e-12)
        << field.name;
  }
}

TEST(FactorMap, PullbackIsTheAdjointOfTheDerivative) {
  // <dw, J du> = <J^T dw, du>, J du by central differences; what passes through included.
  const LayoutPtr full = layout_of("cnn2", {1, 8, 8}, NormChoice::Batch);
  FactorMap map(cp({}, 3), full);
  const Rows u = random_rows(2, map.factors());
  const Rows du = random_rows(2, map.factors());
  const Rows dw = random_rows(2, full);
  Rows pulled{at::empty_like(u.values), map.factors()};
  map.pullback_(u, dw, pulled);
  const Rows ahead = map.expand(u + 1e-6 * du);
  const Rows behind = map.expand(u + -1e-6 * du);
  const Tensor change = (ahead - behind).values / 2e-6;
  const double left = (change * dw.values).sum().item<double>();
  const double right = (pulled.values * du.values).sum().item<double>();
  EXPECT_NEAR(left, right, 1e-6 * std::abs(left));
}

TEST(FactorMap, DrawsItsFactorsAndKeepsTheRest) {
  const LayoutPtr full = layout_of("dnn", {5, 6}, NormChoice::Auto, 3);
  const FactorMap map(cp({4, 2}), full);
  const Rows model = random_rows(1, full);
  const Rows factors = map.initial(model, 9);
  const Field& a2 = map.factors()->field("fc1.A2");
  Draws draws({.seed = 9, .purpose = Purpose::Factors, .client = 1});
  const double sigma = std::pow(2.0 / 30 / 4, 0.25);
  for (std::int64_t i = 0; i < a2.size; ++i) {
    EXPECT_DOUBLE_EQ(factors.values[0][a2.offset + i].item<double>(), sigma * draws.normal());
  }
  const Field& bias = map.factors()->field("fc2.bias");
  EXPECT_TRUE(factors.values.narrow(1, bias.offset, bias.size)
                  .equal(model.values.narrow(1, full->field("fc2.bias").offset, bias.size)));
}

TEST(FactorMap, LeavesLayersFull) {
  const LayoutPtr full = layout_of("vgg8", {3, 32, 32}, NormChoice::None);
  FactorisationOptions options = cp();
  options.exclude = {"first", "fc2", "last"};
  const FactorMap map(options, full);
  EXPECT_EQ(map.layers(), 5);
  for (const char* kept : {"conv1.weight", "fc2.weight", "fc3.weight"}) {
    EXPECT_TRUE(map.factors()->contains(kept)) << kept;
  }
  options.ranks = {1, 2, 3, 4, 5};
  EXPECT_EQ(FactorMap(options, full).factors()->field("fc1.A1").shape, (Sizes{256, 5}));
}

TEST(FactorMap, RefusesWhatDoesNotFit) {
  const LayoutPtr full = layout_of("dnn", {28, 28}, NormChoice::Auto);
  EXPECT_EQ(message_of(cp({1, 2, 3}), full),
            "model.rank gives 3 ranks for 2 factorised layers: fc1, fc2");
  FactorisationOptions options = cp();
  options.exclude = {"fc3"};
  EXPECT_EQ(message_of(options, full),
            "model.exclude names a layer 'fc3' that the model does not have; allowed: first, last, "
            "shortcuts, none, "
            "fc1, fc2; did you mean 'fc1'?");
  options.exclude = {"first", "last"};
  EXPECT_EQ(
      message_of(options, full),
      "model.exclude = first, last leaves none of 2 layers to factorise; name fewer layers, or "
      "none, or take a model of more layers");
}

TEST(FactorMap, FitsRowByRowAndBySingleLayers) {
  const LayoutPtr full = layout_of("dnn", {5, 6}, NormChoice::Auto, 3);
  FactorMap map(cp({30, 3}), full);  // full rank
  const Rows w = random_rows(2, full);
  const Rows start = random_rows(2, map.factors());
  const Rows fitted = map.fit(w, start, 1);
  EXPECT_LT((map.expand(fitted).values - w.values).abs().max().item<double>(), 1e-12);
  const Rows first{w.values.narrow(0, 0, 1), full};
  const Rows from{start.values.narrow(0, 0, 1), map.factors()};
  const std::vector<Tensor> layers{map.fit_layer(0, first, from, 1),
                                   map.fit_layer(1, first, from, 1)};
  EXPECT_TRUE(map.assemble(layers, first).values[0].equal(fitted.values[0]));
}

}  // namespace
}  // namespace fedhpc
