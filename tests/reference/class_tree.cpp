#include "reference/class_tree.hpp"

#include <cmath>
#include <deque>
#include <set>

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>

namespace fedhpc::reference {

std::vector<bool> best_of_all(const std::vector<Tensor>& points) {
  std::vector<bool> best;
  for (std::size_t p = 0; p < points.size(); ++p) best.push_back(2 * p < points.size());
  const Tensor all = at::stack(points);
  if (all.eq(all[0]).all().item<bool>()) return best;
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

std::vector<ClassSplit> class_tree(const Tensor& values, const Tensor& labels) {
  std::set<std::int64_t> classes;
  for (std::int64_t i = 0; i < labels.size(0); ++i) classes.insert(labels[i].item<std::int64_t>());
  std::vector<ClassSplit> tree;
  std::deque<std::vector<std::int64_t>> open{{classes.begin(), classes.end()}};
  for (; !open.empty(); open.pop_front()) {
    if (open.front().size() < 2) continue;
    std::vector<Tensor> means;
    for (const std::int64_t label : open.front()) {
      means.push_back(values.index_select(0, labels.eq(label).nonzero().flatten()).mean(0));
    }
    const std::vector<bool> is_left = best_of_all(means);
    ClassSplit split;
    for (std::size_t i = 0; i < is_left.size(); ++i) {
      (is_left[i] ? split.left : split.right).push_back(open.front()[i]);
    }
    tree.push_back(split);
    open.push_back(split.left);
    open.push_back(split.right);
  }
  return tree;
}

}  // namespace fedhpc::reference
