#pragma once

#include <optional>
#include <string>
#include <vector>

namespace fedhpc {

/// One of the method's own series below /rounds.
struct RoundMetric {
  std::string name;
  std::string unit;
  std::string meaning;
  /// The name that rounds note() it by; empty: `name`.
  std::string noted_name{};
  /// The quantile of the clients' values; none: their mean, or the round's one value.
  std::optional<double> quantile{};
};

/// Returns NOTED_AS_p10, _p50 and _p90, which show a distribution over clients.
std::vector<RoundMetric> quantiles_of(const std::string& noted_name, const std::string& unit,
                                      const std::string& meaning);

}  // namespace fedhpc
