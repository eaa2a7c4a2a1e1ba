#include "fedhpc/core/metric.hpp"

#include "fedhpc/core/error.hpp"

namespace fedhpc {

std::vector<Metric> quantiles_of(const std::string& noted_name, const std::string& unit,
                                 const std::string& meaning) {
  std::vector<Metric> metrics;
  for (const int percent : {10, 50, 90}) {
    metrics.push_back({concat(noted_name, "_p", percent), unit,
                       concat(percent, "th percentile over clients: ", meaning), noted_name,
                       percent / 100.0});
  }
  return metrics;
}

}  // namespace fedhpc
