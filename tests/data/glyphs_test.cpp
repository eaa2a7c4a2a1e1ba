#include "data/glyphs.hpp"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "data/data_support.hpp"

namespace fedhpc {
namespace {

DataOptions small(DataSplit split) {
  DataOptions options;
  options.clients = 3;
  options.samples_per_client = 20;
  options.split = split;
  return options;
}

TEST(GlyphsTest, SizesFollowTheOptions) {
  const auto client = open_dataset(small(DataSplit::Client));
  EXPECT_EQ(client->num_train(), 60);
  EXPECT_EQ(client->num_test(), 0);
  EXPECT_EQ(client->shape(), (std::vector<std::int64_t>{1, 28, 28}));
  const auto official = open_dataset(small(DataSplit::Official));
  EXPECT_EQ(official->num_train(), 60);
  EXPECT_EQ(official->num_test(), 12);
  DataOptions tiny = small(DataSplit::Official);
  tiny.clients = tiny.samples_per_client = 1;
  EXPECT_EQ(open_dataset(tiny)->num_test(), 1);
}

TEST(GlyphsTest, LabelsAreBalancedAndAgreeWithReading) {
  const auto data = open_dataset(small(DataSplit::Client));
  const std::vector<std::int64_t> labels = data->labels();
  for (std::int64_t k = 0; k < 10; ++k) {
    EXPECT_EQ(std::count(labels.begin(), labels.end(), k), 6);
  }
  const std::vector<std::int64_t> ids = {59, 7, 30};
  const Samples samples = data->read(ids);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(samples.labels.data_ptr<std::int64_t>()[i], labels[ids[i]]);
  }
}

TEST(GlyphsTest, ASampleDependsOnSeedAndIdAlone) {
  const auto data = open_dataset(small(DataSplit::Client));
  const std::vector<std::int64_t> some = {41, 3};
  const std::vector<std::int64_t> one = {3};
  const Tensor pair = data->read(some).features;
  const Tensor alone = data->read(one).features;
  const auto* a = pair.data_ptr<std::uint8_t>() + kGlyphPixels;
  const auto* b = alone.data_ptr<std::uint8_t>();
  EXPECT_TRUE(std::equal(a, a + kGlyphPixels, b));

  std::set<std::vector<std::uint8_t>> images;
  std::vector<std::uint8_t> image(kGlyphPixels);
  for (const std::uint64_t seed : {0, 1}) {
    for (const std::int64_t id : {3, 13, 23}) {
      render_glyph(seed, id, image.data());
      images.insert(image);
    }
  }
  EXPECT_EQ(images.size(), 6U) << "another seed or id of the same digit is another image";
}

TEST(GlyphsTest, InkIsInsideAndBackgroundIsDark) {
  std::vector<std::uint8_t> image(kGlyphPixels);
  for (std::int64_t id = 0; id < 500; ++id) {
    render_glyph(2, id, image.data());
    const auto bright = std::count_if(image.begin(), image.end(), [](int p) { return p > 128; });
    EXPECT_GT(bright, 12) << id;
    EXPECT_LT(bright, 250) << id;
    std::int64_t corners = 0;
    for (const std::int64_t corner : {0, 27, 27 * 28, 28 * 28 - 1}) corners += image[corner] > 60;
    EXPECT_EQ(corners, 0) << id;
  }
}

TEST(GlyphsTest, ADigitIsNearestToTheMeanOfItsOwnKind) {
  constexpr std::int64_t kTrain = 2000;
  constexpr std::int64_t kTest = 500;
  std::vector<std::vector<double>> means(10, std::vector<double>(kGlyphPixels, 0));
  std::vector<std::uint8_t> image(kGlyphPixels);
  for (std::int64_t id = 0; id < kTrain; ++id) {
    render_glyph(1, id, image.data());
    for (std::size_t p = 0; p < image.size(); ++p) means[id % 10][p] += image[p] / 200.0;
  }
  std::int64_t correct = 0;
  for (std::int64_t id = kTrain; id < kTrain + kTest; ++id) {
    render_glyph(1, id, image.data());
    std::vector<double> distances;
    for (const std::vector<double>& mean : means) {
      double distance = 0;
      for (std::size_t p = 0; p < image.size(); ++p) {
        distance += (image[p] - mean[p]) * (image[p] - mean[p]);
      }
      distances.push_back(distance);
    }
    const auto best = std::min_element(distances.begin(), distances.end()) - distances.begin();
    correct += best == id % 10;
  }
  EXPECT_GT(correct, kTest * 6 / 10);
  EXPECT_LT(correct, kTest * 95 / 100) << "the task must leave something to learn";
}

}  // namespace
}  // namespace fedhpc
