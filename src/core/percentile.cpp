#include "fedhpc/core/percentile.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fedhpc {

double percentile(std::vector<double> values, double fraction) {
  const auto is_nan = [](double value) { return std::isnan(value); };
  if (values.empty() || std::ranges::any_of(values, is_nan)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  std::sort(values.begin(), values.end());
  const double position = fraction * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  const double part = position - static_cast<double>(below);
  return values[below] + part * (values[above] - values[below]);
}

}  // namespace fedhpc
