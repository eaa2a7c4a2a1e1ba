#include "fedhpc/math/class_tree.hpp"

#include <cmath>
#include <deque>
#include <map>

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "math/samples_support.hpp"

namespace fedhpc {
namespace {

using testing_support::normals;

/// Of all ways to part points in two, that with the least sum of squares to the groups' means;
/// true marks the group of the first point.
std::vector<bool> best_of_all(const std::vector<Tensor>& points) {
  std::vector<bool> best;
  double least = INFINITY;
  for (std::size_t others = 0; others + 1 < (std::size_t{1} << (points.size() - 1)); ++others) {
    std::vector<bool> groups{true};
    for (std::size_t p = 1; p < points.size(); ++p) groups.push_back((others >> (p - 1) & 1) == 1);
    double sum = 0;
    for (const bool of : {false, true}) {
      std::vector<Tensor> members;
      for (std::size_t p = 0; p < points.size(); ++p) {
        if (groups[p] == of) members.push_back(points[p]);
      }
      const Tensor group = at::stack(members);
      sum += (group - group.mean(0)).square().sum().item<double>();
    }
    if (sum >= least) continue;
    least = sum;
    best = groups;
  }
  return best;
}

TEST(TwoMeans, FindsTheBestOfAllGroups) {
  for (std::uint64_t number = 0; number < 5; ++number) {
    const Tensor points = normals(20 + number, 6, 3);
    EXPECT_EQ(two_means(points), best_of_all(points.unbind()));
  }
}

TEST(TwoMeans, OfEqualPointsAreHalves) {
  EXPECT_EQ(two_means(at::zeros({3, 2}, at::kDouble)), (std::vector<bool>{true, true, false}));
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

/// The tree by its definition, of the means of classes.
ClassTree tree_of(const std::map<std::int64_t, Tensor>& means) {
  ClassTree tree;
  std::deque<std::map<std::int64_t, Tensor>> open{means};
  for (; !open.empty(); open.pop_front()) {
    if (open.front().size() < 2) continue;
    std::vector<Tensor> points;
    for (const auto& [label, mean] : open.front()) points.push_back(mean);
    const std::vector<bool> is_left = best_of_all(points);
    ClassSplit split;
    std::map<std::int64_t, Tensor> left, right;
    for (const auto& [label, mean] : open.front()) {
      const bool goes_left = is_left[left.size() + right.size()];
      (goes_left ? split.left : split.right).push_back(label);
      (goes_left ? left : right)[label] = mean;
    }
    tree.push_back(split);
    open.push_back(left);
    open.push_back(right);
  }
  return tree;
}

TEST(ClassTree, IsThatOfTheMeansOfClassesOfAnySize) {
  const std::vector<std::int64_t> labels{6, 1, 9, 6, 4, 7, 6, 9, 6, 4, 6, 9, 6, 3, 1, 6};
  for (std::uint64_t number = 0; number < 5; ++number) {
    const Tensor values = normals(40 + number, static_cast<std::int64_t>(labels.size()), 3) + 1;
    std::map<std::int64_t, std::vector<Tensor>> samples;
    for (std::size_t i = 0; i < labels.size(); ++i) {
      samples[labels[i]].push_back(values[static_cast<std::int64_t>(i)]);
    }
    std::map<std::int64_t, Tensor> means;
    for (const auto& [label, of_class] : samples) means[label] = at::stack(of_class).mean(0);
    const ClassTree tree = class_tree(values, labels);
    const ClassTree expected = tree_of(means);
    ASSERT_EQ(tree.size(), expected.size());
    for (std::size_t node = 0; node < tree.size(); ++node) {
      EXPECT_EQ(tree[node].left, expected[node].left) << "node " << node;
      EXPECT_EQ(tree[node].right, expected[node].right) << "node " << node;
    }
  }
}

}  // namespace
}  // namespace fedhpc
