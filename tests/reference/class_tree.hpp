#pragma once

#include <cstdint>
#include <vector>

#include "fedhpc/core/tensor.hpp"

namespace fedhpc::reference {

/// A node of a tree of classes; ascending, the lowest of all on the left.
struct ClassSplit {
  std::vector<std::int64_t> left;
  std::vector<std::int64_t> right;
};

/// Of all ways to part points in two, that with the least sum of squares to the groups' means; true
/// marks the group of the first point. Of equal points the first half, the larger one.
std::vector<bool> best_of_all(const std::vector<Tensor>& points);

/// The tree whose nodes part the means of the classes of samples [n, E] so, from the root level by
/// level, and from left to right.
std::vector<ClassSplit> class_tree(const Tensor& values, const Tensor& labels);

}  // namespace fedhpc::reference
