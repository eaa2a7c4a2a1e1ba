#include "fedhpc/rounds/privacy.hpp"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "fedhpc/core/error.hpp"

namespace fedhpc {
namespace {

LayoutPtr layout_of(std::int64_t trained, std::int64_t frozen) {
  Layout layout;
  layout.add("frozen", {frozen}, 1, Tag::Buffer);
  layout.add("trained", {trained}, 1, Tag::Trainable);
  return std::make_shared<const Layout>(std::move(layout));
}

TEST(Privacy, ShortensWhatIsLongerThanTheClip) {
  const LayoutPtr layout = layout_of(2, 1);
  const Rows rows{at::zeros({3, 3}, at::kDouble), layout};
  rows.values[0][1] = 3;
  rows.values[0][2] = 4;
  rows.values[1][1] = 0.3;
  rows.values[1][0] = 100;  // of no trainable column
  const Privacy privacy({.clip = 1}, 7, 1);
  EXPECT_EQ(privacy.clip_(rows), (std::vector<double>{1, 0, 0}));
  EXPECT_NEAR(rows.values[0][1].item<double>(), 0.6, 1e-6);
  EXPECT_NEAR(rows.values[0][2].item<double>(), 0.8, 1e-6);
  EXPECT_LE(rows.values[0].narrow(0, 1, 2).norm().item<double>(), 1);
  EXPECT_EQ(rows.values[1][1].item<double>(), 0.3);
  EXPECT_EQ(rows.values[1][0].item<double>(), 100);
  EXPECT_EQ(rows.values[2].abs().max().item<double>(), 0);
}

TEST(Privacy, TakesWhatHasNoLengthAsNothing) {
  const Rows rows{at::ones({3, 3}, at::kDouble), layout_of(2, 1)};
  rows.values[0][1] = std::nan("");
  rows.values[1][2] = HUGE_VAL;
  const Privacy privacy({.clip = 10}, 7, 1);
  EXPECT_EQ(privacy.clip_(rows), (std::vector<double>{1, 1, 0}));
  EXPECT_EQ(rows.values.narrow(1, 1, 2).sum().item<double>(), 2);
}

TEST(Privacy, HoldsForAsManyChangesAsTheMethodTellsOf) {
  const Privacy privacy({.clip = 1}, 7, 2);
  SentChanges sent;
  EXPECT_EQ(sent.most(), 0);
  EXPECT_THROW(privacy.check_uploads(sent.most()), ConfigError);
  const std::vector<std::int64_t> some{3, 5}, one{5};
  EXPECT_EQ(sent.add(some), 1);
  EXPECT_EQ(sent.of(5), 1);
  sent.begin_pass();
  EXPECT_EQ(sent.add(one), 2);
  EXPECT_EQ(sent.of(5), 1) << "in this pass";
  EXPECT_EQ(sent.add(some), 3);
  EXPECT_EQ(sent.of(3), 1);
  EXPECT_NO_THROW(privacy.check_uploads(2));
  EXPECT_THROW(privacy.check_uploads(sent.most()), ConfigError);
}

TEST(Privacy, AddsTheNoiseOfASum) {
  constexpr std::int64_t kColumns = 20000;
  const LayoutPtr layout = layout_of(kColumns, 1);
  const Privacy privacy({.clip = 0.5, .noise = 3}, 7, 1);
  ASSERT_TRUE(privacy.has_noise());
  const auto noise_of = [&](std::int64_t round, std::int64_t pass, std::int64_t number) {
    const Rows row{at::zeros({1, kColumns + 1}, at::kDouble), layout};
    privacy.add_noise_(row, round, pass, number);
    EXPECT_EQ(row.values[0][0].item<double>(), 0) << "a column that is not trained has none";
    return row.values[0].narrow(0, 1, kColumns);
  };
  const Tensor noise = noise_of(4, 0, 0);
  EXPECT_NEAR(noise.mean().item<double>(), 0, 4 * 1.5 / std::sqrt(kColumns));
  EXPECT_NEAR(noise.std().item<double>(), 1.5, 4 * 1.5 / std::sqrt(2.0 * kColumns));
  EXPECT_TRUE(noise.equal(noise_of(4, 0, 0))) << "a function of its key";
  for (const Tensor& other : {noise_of(5, 0, 0), noise_of(4, 1, 0), noise_of(4, 0, 1)}) {
    const double correlation = (noise * other).mean().item<double>() / (1.5 * 1.5);
    EXPECT_NEAR(correlation, 0, 4 / std::sqrt(kColumns));
  }
}

TEST(Privacy, SaysWhatItNotes) {
  EXPECT_EQ(Privacy({.clip = 1}, 0, 1).metrics().size(), 1U) << "without noise there is no epsilon";
  EXPECT_EQ(Privacy({.clip = 1, .noise = 1}, 0, 1).metrics().back().name, Privacy::kEpsilon);
}

}  // namespace
}  // namespace fedhpc
