#include "fedhpc/math/simplex.hpp"

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include <ATen/ops/empty_like.h>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

namespace {

/// The tau by which numbers are lowered; the largest of them is 0.
double threshold_of(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end(), std::greater<>());
  double sum = 0;
  double tau = 0;
  for (std::size_t k = 0; k < numbers.size(); ++k) {
    sum += numbers[k];
    const double next = (sum - 1) / static_cast<double>(k + 1);  // as if these were left
    if (!(numbers[k] > next)) break;
    tau = next;
  }
  return tau;
}

}  // namespace

Tensor project_to_simplex(const Tensor& points) {
  require(points.scalar_type() == at::kDouble && points.dim() == 2 && points.is_contiguous(),
          "points are rows of float64");
  const Tensor nearest = at::empty_like(points);
  const auto n = static_cast<std::size_t>(points.size(1));
  for (std::int64_t r = 0; r < points.size(0) && n > 0; ++r) {
    const std::span<const double> point(points.const_data_ptr<double>() + r * points.size(1), n);
    const double largest = *std::max_element(point.begin(), point.end());
    std::vector<double> lowered(point.begin(), point.end());
    for (double& number : lowered) number -= largest;  // nothing is nearer for it, and less rounds
    const double tau = threshold_of(lowered);
    double* to = nearest.data_ptr<double>() + r * points.size(1);
    for (std::size_t i = 0; i < n; ++i) to[i] = std::max(lowered[i] - tau, 0.0);
  }
  return nearest;
}

}  // namespace fedhpc
