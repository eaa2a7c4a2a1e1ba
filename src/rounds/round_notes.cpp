#include "fedhpc/rounds/round_notes.hpp"

#include <algorithm>
#include <limits>

#include <ATen/ops/empty.h>

#include "fedhpc/core/error.hpp"
#include "fedhpc/core/options.hpp"
#include "fedhpc/core/percentile.hpp"

namespace fedhpc {

namespace {

/// As a column [n, 1].
Tensor column_of(const std::vector<double>& values) {
  Tensor column = at::empty({static_cast<std::int64_t>(values.size()), 1}, at::kDouble);
  std::copy(values.begin(), values.end(), column.data_ptr<double>());
  return column;
}

}  // namespace

void RoundNotes::require_added(const std::string& metric) const {
  if (series_ == nullptr || series_->contains(metric)) return;
  throw Error(concat("a value is noted of the series '", metric,
                     "', which the method has not added",
                     suggestion(nearest(metric, {series_->begin(), series_->end()}),
                                "; add it by Setup::add_metrics() in initialise()")));
}

std::vector<double> RoundNotes::means(const std::vector<std::string>& metrics, Topology& topology,
                                      Summation summation) const {
  std::vector<double> values(metrics.size(), std::numeric_limits<double>::quiet_NaN());
  if (metrics.empty()) return values;
  WeightedSum sum(static_cast<std::int64_t>(metrics.size()), 1, summation);
  for (std::size_t m = 0; m < metrics.size(); ++m) {
    const auto whole = values_.find(metrics[m]);
    if (whole != values_.end()) values[m] = whole->second;
    const auto parts = parts_.find(metrics[m]);
    if (parts == parts_.end()) continue;
    const std::size_t n = parts->second.size();
    sum.add(std::vector<std::int64_t>(n, static_cast<std::int64_t>(m)), std::vector<double>(n, 1),
            column_of(parts->second));
  }
  const Tensor sums = sum.total(topology, Among::All);
  for (std::size_t m = 0; m < values.size(); ++m) {
    const double* of_metric = sums.const_data_ptr<double>() + 2 * m;
    if (of_metric[1] == 0) continue;
    require(!values_.contains(metrics[m]),
            "a metric is set, or has the values of clients or edges");
    values[m] = of_metric[0] / of_metric[1];
  }
  return values;
}

double RoundNotes::quantile(const std::string& metric, double fraction, Topology& topology) const {
  const auto mine = parts_.find(metric);
  const Tensor all = topology.world().all_gather(
      column_of(mine == parts_.end() ? std::vector<double>{} : mine->second));
  const auto* first = all.const_data_ptr<double>();
  return percentile({first, first + all.numel()}, fraction);
}

}  // namespace fedhpc
