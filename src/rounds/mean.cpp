#include "fedhpc/rounds/mean.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "fedhpc/core/device.hpp"
#include "fedhpc/core/error.hpp"

namespace fedhpc {

Tensor quotients(const Tensor& sums, at::ScalarType type, const Tensor& otherwise) {
  const std::int64_t columns = sums.size(1) - 1;
  if (on_device(sums)) {
    const Tensor weights = sums.narrow(1, columns, 1);
    const Tensor means = sums.narrow(1, 0, columns).div(weights).to(type);
    return otherwise.defined() ? at::where(weights.eq(0), otherwise, means)
                               : means.masked_fill(weights.eq(0), 0);
  }
  Tensor means = otherwise.defined() ? otherwise.clone() : at::zeros({sums.size(0), columns}, type);
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

LoggedSum::LoggedSum(const MeanServices& services, std::int64_t segments)
    : sum_(segments, services.layout->size(), services.context.summation, services.context.device) {
  if (services.log != nullptr) place_ = services.log->open(sum_.contents());
}

WeightedSum* LoggedSum::operator->() {
  require(!taken_, "a mean takes no more rows once it is reduced");
  return &sum_;
}

Tensor LoggedSum::take(const MeanServices& services, Among ranks,
                       const std::function<Tensor(const Tensor&)>& of_sums,
                       const std::function<Tensor()>& blank) {
  require(!taken_, "a mean is reduced once");
  taken_ = true;
  const AtTask mean(services.topology.world().place(), Place::Task::Mean);
  const auto compute = [&] { return of_sums(sum_.total(services.topology, ranks)); };
  return services.log == nullptr
             ? compute()
             : services.log->take(place_, services.topology, ranks, compute, blank);
}

namespace {

/// Zeros in the place of `count` means.
Tensor no_means(const MeanServices& services, std::int64_t count) {
  return at::zeros({count, services.layout->size()}, services.context.options());
}

}  // namespace

Mean::Mean(const MeanServices& services) : services_(services), sum_(services, 1) {}

void Mean::add(std::span<const double> weights, const Rows& rows) {
  require(rows.layout == services_.layout, "a mean takes rows of its own layout");
  for (const double weight : weights) largest_ = std::max(largest_, weight);
  const Timed timed(services_.watch);
  const std::vector<std::int64_t> one_segment(weights.size(), 0);
  sum_->add(one_segment, weights, rows.values);
}

void Mean::require_equal(double total, double largest) const {
  constexpr double kRounding = 1e-6;
  const auto equal = static_cast<double>(services_.equal) * largest;
  if (std::abs(total - equal) <= kRounding * equal) return;
  throw ConfigError(concat("privacy.noise holds for equal weights, and in a mean of the method ",
                           services_.equal, " participants weigh up to ", largest, " and together ",
                           total, "; it has to weigh all of them uniformly"));
}

Rows Mean::reduce() { return reduce({}); }

Rows Mean::reduce(const Rows& otherwise) {
  const Timed timed(services_.watch);
  Tensor largest = at::full({1}, largest_, at::kDouble);
  if (services_.equal > 0) services_.topology.world().max_(largest);
  return {sum_.take(
              services_, Among::All,
              [&](const Tensor& sums) {
                // Blocks of before an interruption have not told their weights.
                if (const auto most = largest.item<double>(); services_.equal > 0 && most > 0) {
                  require_equal(sums.select(1, sums.size(1) - 1).item<double>(), most);
                }
                return quotients(sums, services_.context.type, otherwise.values);
              },
              [&] { return no_means(services_, 1); }),
          services_.layout};
}

namespace {

// Segments of a ColumnMean's sum: numbers that were sent, and ones in their places. Apart, so that
// an exact sum has an exponent for each.
constexpr std::int64_t kNumbers = 0;
constexpr std::int64_t kOnes = 1;

}  // namespace

ColumnMean::ColumnMean(const MeanServices& services) : services_(services), sum_(services, 2) {
  if (services.equal == 0) return;
  throw ConfigError(
      "privacy.noise holds for means over all participants, and the method takes one of each "
      "column over those that have sent it");
}

void ColumnMean::add(std::span<const double> weights, const Rows& rows, const Tensor& sent) {
  require(rows.layout == services_.layout, "a mean takes rows of its own layout");
  const Timed timed(services_.watch);
  const std::vector<std::int64_t> numbers(weights.size(), kNumbers);
  const std::vector<std::int64_t> ones(weights.size(), kOnes);
  sum_->add(numbers, weights, rows.values.masked_fill(sent.logical_not(), 0));
  sum_->add(ones, weights, sent.to(services_.context.type));
}

Rows ColumnMean::reduce(const Rows& otherwise) {
  const Timed timed(services_.watch);
  const auto means = [&](const Tensor& all) {
    const Tensor sums = all.narrow(1, 0, services_.layout->size());
    const Tensor weights = sums.narrow(0, kOnes, 1);
    const Tensor quotients = sums.narrow(0, kNumbers, 1).div(weights);
    return at::where(weights.gt(0), quotients.to(services_.context.type), otherwise.values);
  };
  return {sum_.take(services_, Among::All, means, [&] { return no_means(services_, 1); }),
          services_.layout};
}

EdgeMean::EdgeMean(const MeanServices& services)
    : services_(services), sum_(services, services.topology.edges().size()) {}

void EdgeMean::add(std::span<const std::int64_t> edges, std::span<const double> weights,
                   const Rows& rows) {
  require(rows.layout == services_.layout, "a mean takes rows of its own layout");
  const Timed timed(services_.watch);
  std::vector<std::int64_t> segments;
  const Range mine = services_.topology.edges();
  for (const std::int64_t edge : edges) {
    if (!mine.holds(edge)) {
      throw std::invalid_argument(concat("an edge mean's add wants edges of this rank, ",
                                         mine.first, " to ", mine.last - 1, ", got ", edge));
    }
    segments.push_back(edge - mine.first);
  }
  sum_->add(segments, weights, rows.values);
}

EdgeRows EdgeMean::reduce() { return reduce({}); }

EdgeRows EdgeMean::reduce(const EdgeRows& otherwise) {
  const Timed timed(services_.watch);
  const Range edges = services_.topology.edges();
  return {{sum_.take(
               services_, Among::Edge,
               [&](const Tensor& sums) {
                 return quotients(sums, services_.context.type, otherwise.rows.values);
               },
               [&] { return no_means(services_, edges.size()); }),
           services_.layout},
          edges.first};
}

}  // namespace fedhpc
