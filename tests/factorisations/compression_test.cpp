#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fedhpc/core/error.hpp"
#include "fedhpc/factorisations/factor_map.hpp"
#include "fedhpc/factorisations/hadamard.hpp"
#include "fedhpc/factorisations/kronecker.hpp"
#include "fedhpc/models/model.hpp"

// How many numbers factors hold: the plans of FedMUD's public code.
namespace fedhpc {
namespace {

using Sizes = std::vector<std::int64_t>;

LayoutPtr layout_of(const std::string& name, const Sizes& shape, std::int64_t classes) {
  ModelOptions options;
  options.name = name;
  return make_model(options, shape, classes)->layout();
}

FactorisationOptions of_model(const std::string& name) {
  FactorisationOptions options;
  options.name = name;
  options.compression = 32;
  options.scope = CompressionScope::Model;
  options.exclude = {"first", "last"};
  options.view = ConvView::Raw;
  return options;
}

/// Trainable columns at 1/32 of the whole model, first and last layer in full.
std::int64_t count(const std::string& factorisation, const LayoutPtr& layout) {
  return FactorMap(of_model(factorisation), layout).factors()->count(Tag::Trainable);
}

/// Rank of each factorised layer: the last size of its first factor, or the number of blocks.
Sizes ranks(const std::string& factorisation, const LayoutPtr& layout) {
  Sizes ranks;
  for (const Field& field : FactorMap(of_model(factorisation), layout).factor_fields()) {
    if (!field.name.ends_with(".V")) continue;
    ranks.push_back(field.shape.size() == 3 ? field.shape.front() : field.shape.back());
  }
  return ranks;
}

TEST(Compression, OfFashionMnistsNet) {
  const LayoutPtr layout = layout_of("cnn4", {1, 28, 28}, 10);
  ASSERT_EQ(layout->count(Tag::Trainable), 390'880);
  EXPECT_EQ(count("low_rank", layout), 11'872);
  EXPECT_EQ(count("low_rank_aad", layout), 11'872);
  EXPECT_EQ(ranks("low_rank", layout), (Sizes{2, 3, 5}));
  EXPECT_EQ(count("low_rank_f", layout), 12'544);
  EXPECT_EQ(ranks("low_rank_f", layout), (Sizes{5, 9, 17}));
  EXPECT_EQ(count("kronecker", layout), 12'008);
  EXPECT_EQ(count("kronecker_aad", layout), 12'008);
  EXPECT_EQ(ranks("kronecker", layout), (Sizes{2, 8, 31}));
  EXPECT_EQ(count("kronecker_f", layout), 12'481);
  EXPECT_EQ(ranks("kronecker_f", layout), (Sizes{9, 34, 134}));
  // What travels: the trained columns and 960 statistics of batch norm.
  EXPECT_EQ(FactorMap(of_model("kronecker_aad"), layout).factors()->size(), 12'008 + 960);
}

TEST(Compression, RoundingMakesNoBlockMoreAndNoRankLess) {
  const MatrixView view({.sizes = {100, 784}}, ConvView::Raw);
  const auto blocks = [&](BlockLayout layout) {
    return KroneckerProduct::rank_of(view, {10}, Trained::Both, layout);
  };
  EXPECT_EQ(blocks(BlockLayout::Stacked), 196);  // 100 * 784 / (4 * 10^2)
  EXPECT_EQ(blocks(BlockLayout::Grid), 14 * 14);
  EXPECT_EQ(Hadamard::rank_of({.sizes = {10, 128, 3, 3}}, {5}), 6);
  const MatrixView whole({.sizes = {192, 320}}, ConvView::Raw);
  for (const auto& [rate, rank] : {std::pair{5.0, 24}, {10.0, 12}, {2.5, 48}}) {
    EXPECT_EQ(rank_within(whole, {rate}, 192 + 320), rank) << "192 * 320 / 512 = 120 is divided";
  }
}

TEST(Compression, OfTheOtherNets) {
  const LayoutPtr svhn = layout_of("cnn4", {3, 32, 32}, 10);
  EXPECT_EQ(count("low_rank", svhn), 14'080);  // rank 1 does not reach 1/32
  EXPECT_EQ(count("kronecker", svhn), 14'082);
  const LayoutPtr cnn8 = layout_of("cnn8", {3, 32, 32}, 10);
  EXPECT_EQ(count("low_rank", cnn8), 37'408);
  EXPECT_EQ(ranks("low_rank", cnn8), (Sizes{1, 2, 2, 3, 4, 5, 8}));
  EXPECT_EQ(count("kronecker", cnn8), 37'624);
  const LayoutPtr cnn10 = layout_of("cnn10", {3, 32, 32}, 10);
  EXPECT_EQ(count("low_rank", cnn10), 151'840);
  EXPECT_EQ(count("kronecker", cnn10), 152'026);
  EXPECT_EQ(ranks("kronecker", cnn10), (Sizes{2, 4, 7, 14, 28, 55, 110, 219, 438}));
  const LayoutPtr cifar100 = layout_of("cnn10", {3, 32, 32}, 100);
  EXPECT_EQ(count("low_rank", cifar100), 149'536);
  EXPECT_EQ(count("kronecker", cifar100), 153'232);
}

TEST(Compression, OfAWholeModelThatCannotBeMetIsRefused) {
  // The classifier alone is 8 % of the model.
  const LayoutPtr cnn8 = layout_of("cnn8", {3, 32, 32}, 100);
  EXPECT_THROW(FactorMap(of_model("low_rank"), cnn8), ConfigError);
  EXPECT_THROW(FactorMap(of_model("kronecker"), cnn8), ConfigError);
}

TEST(Compression, OfResNet18LeavesShortcutsAndClassifierInFull) {
  ModelOptions options;
  options.name = "resnet18";
  const LayoutPtr layout = make_model(options, {3, 32, 32}, 10)->layout();
  FactorisationOptions plan = of_model("kronecker_aad");
  plan.exclude = {"first", "last", "shortcuts"};
  const FactorMap map(plan, layout);
  EXPECT_EQ(map.layers(), 16);  // 3x3 convolutions but the first
  for (const char* full : {"conv1.weight", "layer2.0.downsample.0.weight", "fc.weight"}) {
    EXPECT_TRUE(map.factors()->contains(full)) << full;
  }
  EXPECT_FALSE(map.factors()->contains("layer1.0.conv1.weight"));
  const auto share = static_cast<double>(map.factors()->count(Tag::Trainable)) /
                     static_cast<double>(layout->count(Tag::Trainable));
  EXPECT_NEAR(share, 1.0 / 32, 0.001);
}

TEST(Compression, OfEachLayer) {
  // FedPara's 256 x 128 kernels of 3 x 3 at 1/32: r = 9, of 9.77; a matrix of 100 x 50 at 1/2: 8.
  FactorisationOptions options;
  options.name = "hadamard";
  options.compression = 32;
  options.exclude = {};
  Layout kernels;
  kernels.add("conv.weight", {256, 128, 3, 3}, 1152, Tag::Trainable);
  const FactorMap map(options, std::make_shared<Layout>(kernels));
  EXPECT_EQ(map.factors()->size(), 2 * (9 * 9 * 9 + 9 * (256 + 128)));
  Layout matrix;
  matrix.add("fc.weight", {100, 50}, 50, Tag::Trainable);
  options.compression = 2;
  EXPECT_EQ(FactorMap(options, std::make_shared<Layout>(matrix)).factors()->size(), 2 * 8 * 150);
}

}  // namespace
}  // namespace fedhpc
