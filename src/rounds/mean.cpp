#include "fedhpc/rounds/mean.hpp"

#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/core/device.hpp"

namespace fedhpc {

Tensor quotients(const Tensor& sums, at::ScalarType type) {
  const std::int64_t columns = sums.size(1) - 1;
  if (on_device(sums)) {
    const Tensor weights = sums.narrow(1, columns, 1);
    return sums.narrow(1, 0, columns).div(weights).masked_fill_(weights.eq(0), 0).to(type);
  }
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
    : services_(services), sum_(1, services.layout->size(), services.summation, services.device) {}

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

namespace {

// Segments of a ColumnMean's sum: numbers that were sent, and ones in their places. Apart, so that
// an exact sum has an exponent for each.
constexpr std::int64_t kNumbers = 0;
constexpr std::int64_t kOnes = 1;

}  // namespace

ColumnMean::ColumnMean(const MeanServices& services)
    : services_(services), sum_(2, services.layout->size(), services.summation, services.device) {}

void ColumnMean::add(std::span<const double> weights, const Rows& rows, const Tensor& sent) {
  require(rows.layout == services_.layout, "a mean takes rows of its own layout");
  const Timed timed(services_.watch);
  const std::vector<std::int64_t> numbers(weights.size(), kNumbers);
  const std::vector<std::int64_t> ones(weights.size(), kOnes);
  sum_.add(numbers, weights, rows.values.masked_fill(sent.logical_not(), 0));
  sum_.add(ones, weights, sent.to(services_.type));
}

Rows ColumnMean::reduce(const Rows& otherwise) {
  const Timed timed(services_.watch);
  const Tensor sums =
      sum_.total(services_.topology, Among::All).narrow(1, 0, services_.layout->size());
  const Tensor weights = sums.narrow(0, kOnes, 1);
  const Tensor means = sums.narrow(0, kNumbers, 1).div(weights);
  return {at::where(weights.gt(0), means.to(services_.type), otherwise.values), services_.layout};
}

EdgeMean::EdgeMean(const MeanServices& services)
    : services_(services),
      sum_(services.topology.edges().size(), services.layout->size(), services.summation,
           services.device) {}

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
