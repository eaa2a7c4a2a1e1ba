#include "models/kept_columns.hpp"

#include <memory>

#include <gtest/gtest.h>

namespace fedhpc {
namespace {

TEST(KeptColumns, AreThoseOfTheirImagesUntilTheyAreDropped) {
  const auto total = std::make_shared<KeptColumns::Room>();
  const Tensor images = at::empty({2, 3, 4}, at::kFloat);
  const Tensor others = at::empty({2, 3, 4}, at::kFloat);
  KeptColumns kept;
  EXPECT_FALSE(kept.of(images, {2, 5}).defined());
  const Tensor columns = kept.make(images, {2, 5}, total);
  EXPECT_TRUE(kept.of(images, {2, 5}).is_same(columns));
  EXPECT_FALSE(kept.of(images, {2, 6}).defined());
  EXPECT_FALSE(kept.of(others, {2, 5}).defined());
  EXPECT_EQ(total->kept, 2 * 5 * 4);
  EXPECT_TRUE(kept.make(others, {3, 5}, total).defined());
  EXPECT_FALSE(kept.of(images, {2, 5}).defined());
  EXPECT_EQ(total->kept, 3 * 5 * 4);
  kept.drop();
  kept.drop();
  EXPECT_FALSE(kept.of(others, {3, 5}).defined());
  EXPECT_EQ(total->kept, 0);
}

TEST(KeptColumns, OfAModelHaveRoomTogether) {
  const auto total = std::make_shared<KeptColumns::Room>();
  const Tensor images = at::empty({1}, at::TensorOptions(at::kFloat).device(at::kMeta));
  const std::int64_t half = kKeptBytes / 4 / 2;  // values
  KeptColumns first;
  {
    KeptColumns second;
    EXPECT_TRUE(first.make(images, {half}, total).defined());
    EXPECT_TRUE(second.make(images, {half}, total).defined());
    KeptColumns third;
    EXPECT_FALSE(third.make(images, {1}, total).defined());
    EXPECT_TRUE(second.make(images, {half - 1}, total).defined());
    EXPECT_TRUE(third.make(images, {1}, total).defined());
  }
  EXPECT_EQ(total->kept, kKeptBytes / 2);
  total->most = kKeptBytes / 4;
  EXPECT_FALSE(first.make(images, {half}, total).defined());
  EXPECT_TRUE(first.make(images, {half / 2}, total).defined());
}

}  // namespace
}  // namespace fedhpc
