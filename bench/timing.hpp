#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <ctime>
#include <vector>

#include "fedhpc/core/error.hpp"

namespace fedhpc::bench {

/// CPU time of this process [s]: other work on the machine does not count.
inline double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// CPU time of one of the `steps` steps a call of the variant takes [us].
template <typename Variant>
double microseconds_per_step(Variant& variant, std::int64_t steps) {
  const double begin = cpu_seconds();
  require(std::isfinite(variant()), "a variant computes finite numbers");
  return 1e6 * (cpu_seconds() - begin) / static_cast<double>(steps);
}

/// The medians of a series of times, and of its ratios to another series.
struct Series {
  std::vector<double> values;

  double median_of() const { return median(values); }
  double over(const Series& other) const {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < values.size(); ++i) {
      ratios.push_back(values[i] / other.values[i]);
    }
    return median(ratios);
  }
};

}  // namespace fedhpc::bench
