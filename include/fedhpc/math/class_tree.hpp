#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

/// Where classes part: a node that tells some of them from others.
struct ClassSplit {
  std::vector<std::int64_t> left;   ///< ascending, with the lowest of all
  std::vector<std::int64_t> right;  ///< ascending
};

/// A binary tree with a class at every leaf: its inner nodes, level by level from the root, and
/// from left to right. Classes that have samples, C of them, make C - 1 nodes.
using ClassTree = std::vector<ClassSplit>;

/// The two groups of points [m, E] float64, m >= 2, with the least sum of squares to their means
/// that Lloyd's iterations find from any pair of points: true for those with point 0. Where all
/// points are one, the first half.
std::vector<bool> two_means(const Tensor& points);

/// The tree of the classes of these samples: each node parts its classes by 2-means of the classes'
/// mean values. A function of values and labels alone, with no draws.
ClassTree class_tree(const Tensor& values,  // [n, E] float64
                     std::span<const std::int64_t> labels);

}  // namespace fedhpc
