#include "fedhpc/rounds/mean.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/core/error.hpp"

namespace fedhpc {

Tensor quotients(const Tensor& sums, at::ScalarType type) {
  const std::int64_t columns = sums.size(1) - 1;
  Tensor means = at::zeros({sums.size(0), columns}, type);
  for (std::int64_t s = 0; s < sums.size(0); ++s) {
    const double* row = sums.const_data_ptr<double>() + s * (columns + 1);
    const double weight = row[columns];
    if (weight == 0) continue;
    with_type(type, [&]<typename T>() {
      T* out = means.data_ptr<T>() + s * columns;
      for (std::int64_t i = 0; i < columns; ++i) out[i] = static_cast<T>(row[i] / weight);
    });
  }
  return means;
}

Mean::Mean(const MeanServices& services)
    : services_(services), sum_(1, services.layout->size(), services.summation) {}

void Mean::add(std::span<const double> weights, const Rows& rows) {
  require(rows.layout == services_.layout, "a mean takes rows of its own layout");
  const Timed timed(services_.watch);
  const std::vector<std::int64_t> one_segment(weights.size(), 0);
  sum_.add(one_segment, weights, rows.values);
}

Rows Mean::reduce() {
  const Timed timed(services_.watch);
  return {quotients(sum_.total(services_.topology, Among::All), services_.type), services_.layout};
}

ColumnMean::ColumnMean(const MeanServices& services)
    : services_(services), sum_(1, 2 * services.layout->size(), services.summation) {}

void ColumnMean::add(std::span<const double> weights, const Rows& rows, const Tensor& sent) {
  require(rows.layout == services_.layout, "a mean takes rows of its own layout");
  const Timed timed(services_.watch);
  const std::vector<std::int64_t> one_segment(weights.size(), 0);
  sum_.add(one_segment, weights, at::cat({rows.values.mul(sent), sent.to(services_.type)}, 1));
}

Rows ColumnMean::reduce(const Rows& otherwise) {
  const Timed timed(services_.watch);
  const std::int64_t columns = services_.layout->size();
  const Tensor sums = sum_.total(services_.topology, Among::All);
  const Tensor weights = sums.narrow(1, columns, columns);
  const Tensor means = sums.narrow(1, 0, columns).div(weights);
  return {at::where(weights.gt(0), means.to(services_.type), otherwise.values), services_.layout};
}

EdgeMean::EdgeMean(const MeanServices& services)
    : services_(services),
      sum_(services.topology.edges().size(), services.layout->size(), services.summation) {}

void EdgeMean::add(std::span<const std::int64_t> edges, std::span<const double> weights,
                   const Rows& rows) {
  require(rows.layout == services_.layout, "a mean takes rows of its own layout");
  const Timed timed(services_.watch);
  std::vector<std::int64_t> segments;
  for (const std::int64_t edge : edges) segments.push_back(edge - services_.topology.edges().first);
  sum_.add(segments, weights, rows.values);
}

EdgeRows EdgeMean::reduce() {
  const Timed timed(services_.watch);
  return {
      {quotients(sum_.total(services_.topology, Among::Edge), services_.type), services_.layout},
      services_.topology.edges().first};
}

}  // namespace fedhpc
