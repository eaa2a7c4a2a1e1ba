#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

/// A node of a class tree: it tells the classes on its left from those on its right.
struct ClassSplit {
  std::vector<std::int64_t> left;   ///< ascending, with the lowest of all
  std::vector<std::int64_t> right;  ///< ascending
  std::int64_t left_samples = 0;    ///< of the samples that the tree is of
  std::int64_t right_samples = 0;
};

/// A binary tree with a class at every leaf. It lists the inner nodes level by level from the root,
/// and from left to right. C classes with samples make C - 1 nodes.
using ClassTree = std::vector<ClassSplit>;

/// Splits points [m, E] float64, m >= 2, into two groups; true marks the group of point 0. They
/// have the least sum of squares to their means that Lloyd's iterations find from any pair of
/// points. Where all points are one, the first half.
std::vector<bool> two_means(const Tensor& points);

/// Builds the tree of the classes of these samples: each node parts its classes by 2-means of the
/// classes' mean values. It depends on values and labels alone, without draws.
ClassTree class_tree(const Tensor& values,  // [n, E] float64
                     std::span<const std::int64_t> labels);

}  // namespace fedhpc
