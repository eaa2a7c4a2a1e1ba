#pragma once

#include <optional>
#include <string>
#include <vector>

namespace fedhpc {

/// A series below /rounds of a result file.
struct Metric {
  std::string name;
  std::string unit;
  std::string meaning;
  /// Of a method's own: what its rounds note() it as; empty: by its name.
  std::string noted_name{};
  /// Of a method's own: which quantile of the clients' values; none: their mean, or the round's one
  /// value.
  std::optional<double> quantile{};
};

/// NOTED_AS_p10, _p50 and _p90: what a distribution over clients looks like.
std::vector<Metric> quantiles_of(const std::string& noted_name, const std::string& unit,
                                 const std::string& meaning);

}  // namespace fedhpc
