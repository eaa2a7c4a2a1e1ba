#include "fedhpc/math/class_tree.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "math/samples_support.hpp"
#include "reference/class_tree.hpp"

namespace fedhpc {
namespace {

using namespace testing_support;

TEST(TwoMeans, FindsTheBestOfAllGroups) {
  for (std::uint64_t number = 0; number < 5; ++number) {
    const Tensor points = normals(20 + number, 6, 3);
    EXPECT_EQ(two_means(points), reference::best_of_all(points.unbind()));
  }
}

TEST(TwoMeans, OfEqualPointsAreHalves) {
  const Tensor points = at::zeros({3, 2}, at::kDouble);
  EXPECT_EQ(two_means(points), (std::vector<bool>{true, true, false}));
  EXPECT_EQ(two_means(points), reference::best_of_all(points.unbind()));
}

TEST(ClassTree, PartsNearClassesLast) {
  // Classes 4 and 9 lie side by side, 1 and 7 elsewhere.
  const std::vector<std::int64_t> labels{4, 1, 9, 7, 4, 1};
  const Tensor values = at::zeros({6, 2}, at::kDouble);
  const double places[] = {0, 10, 0.5, 12, 0.1, 10};
  for (std::int64_t i = 0; i < 6; ++i) values[i][0].fill_(places[i]);
  const ClassTree tree = class_tree(values, labels);
  ASSERT_EQ(tree.size(), 3U);
  EXPECT_EQ(tree[0].left, (std::vector<std::int64_t>{1, 7}));
  EXPECT_EQ(tree[0].right, (std::vector<std::int64_t>{4, 9}));
  EXPECT_EQ(tree[1].left, (std::vector<std::int64_t>{1}));
  EXPECT_EQ(tree[2].right, (std::vector<std::int64_t>{9}));
  EXPECT_TRUE(class_tree(values.narrow(0, 0, 1), std::vector<std::int64_t>{4}).empty());
}

TEST(ClassTree, IsThatOfTheMeansOfClassesOfAnySize) {
  const std::vector<std::int64_t> labels{6, 1, 9, 6, 4, 7, 6, 9, 6, 4, 6, 9, 6, 3, 1, 6};
  for (std::uint64_t number = 0; number < 5; ++number) {
    const Tensor values = normals(40 + number, static_cast<std::int64_t>(labels.size()), 3) + 1;
    const ClassTree tree = class_tree(values, labels);
    const auto expected = reference::class_tree(values, at::tensor(labels, at::kLong));
    ASSERT_EQ(tree.size(), expected.size());
    for (std::size_t node = 0; node < tree.size(); ++node) {
      EXPECT_EQ(tree[node].left, expected[node].left) << "node " << node;
      EXPECT_EQ(tree[node].right, expected[node].right) << "node " << node;
    }
  }
}

}  // namespace
}  // namespace fedhpc
