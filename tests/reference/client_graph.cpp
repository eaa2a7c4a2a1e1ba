#include "reference/client_graph.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include <ATen/TensorOperators.h>
#include <ATen/core/IListRef.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_eigh.h>

#include "fedhpc/math/distribution_distance.hpp"

namespace fedhpc::reference {

namespace {

using Space = ClientGraphSettings::Space;
using Distances = std::vector<std::vector<double>>;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kMostPooled = 1000;   // samples of all clients that give the bandwidth
constexpr std::int64_t kPooledOfClient = 8;  // at most, of each
constexpr double kRidge = 1e-3;              // of the mean variance, under the logarithm

double apart(const Tensor& a, const Tensor& b) { return a.sub(b).norm().item<double>(); }

/// ||x_i - y_j|| of rows of contiguous matrices.
double rows_apart(const Tensor& x, std::int64_t i, const Tensor& y, std::int64_t j) {
  const double* a = x.const_data_ptr<double>() + i * x.size(1);
  const double* b = y.const_data_ptr<double>() + j * y.size(1);
  double sum = 0;
  for (std::int64_t f = 0; f < x.size(1); ++f) sum += (a[f] - b[f]) * (a[f] - b[f]);
  return std::sqrt(sum);
}

/// The median distance of two samples among the first of every client.
double bandwidth(const Problem& problem) {
  const auto n = static_cast<std::int64_t>(problem.clients.size());
  const std::int64_t each = std::min(kPooledOfClient, std::max<std::int64_t>(1, kMostPooled / n));
  std::vector<Tensor> firsts;
  for (const Client& client : problem.clients) {
    firsts.push_back(client.features.narrow(0, 0, std::min(each, client.labels.size(0))));
  }
  const Tensor pooled = at::cat(firsts);
  std::vector<double> all;
  for (std::int64_t a = 0; a < pooled.size(0); ++a) {
    for (std::int64_t b = 0; b < a; ++b) all.push_back(rows_apart(pooled, a, pooled, b));
  }
  return median(all);
}

/// Mean of exp(-||x - y||^2 / (2 h^2)) over all pairs.
double kernel_mean_of(const Tensor& x, const Tensor& y, double h) {
  double sum = 0;
  for (std::int64_t i = 0; i < x.size(0); ++i) {
    for (std::int64_t j = 0; j < y.size(0); ++j) {
      const double d = rows_apart(x, i, y, j);
      sum += std::exp(-d * d / (2 * h * h));
    }
  }
  return sum / static_cast<double>(x.size(0) * y.size(0));
}

double mean_discrepancy(const Tensor& x, const Tensor& y, double h) {
  const double squared =
      kernel_mean_of(x, x, h) + kernel_mean_of(y, y, h) - 2 * kernel_mean_of(x, y, h);
  return std::sqrt(std::max(0.0, squared));
}

/// (1/n) sum_i (x_i - mean)(x_i - mean)^T.
Tensor covariance_of(const Tensor& x) {
  const Tensor centred = x - x.mean(0, /*keepdim=*/true);
  return centred.t().matmul(centred).div(static_cast<double>(x.size(0)));
}

/// log(C + ridge tr(C)/F I), of a singular matrix with eigenvalues of at least rounding.
Tensor logarithm_of(const Tensor& c) {
  const auto f = static_cast<double>(c.size(0));
  const auto [values, vectors] = at::linalg_eigh(c);
  const Tensor raised = values + kRidge * c.trace() / f;
  const double floor = std::max(std::numeric_limits<double>::min(),
                                raised.max().item<double>() * std::pow(2, -52) * f);
  return vectors.mul(raised.clamp_min(floor).log()).matmul(vectors.t());
}

/// A client's model after some local trainings from the initial one, as gradients move it.
Tensor local_model(const Problem& problem, std::int64_t k, std::int64_t passes) {
  Parameters model = problem.initial;
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    model = train(problem, k, /*round=*/0, {.pass = pass}, model).parameters;
  }
  return flatten(chosen(model, trainable(problem)));
}

/// What a client is compared by, but for kernels of pairs.
std::vector<Tensor> summaries(const Problem& problem, const ClientGraphSettings& settings) {
  std::vector<Tensor> all;
  for (std::size_t k = 0; k < problem.clients.size(); ++k) {
    const Tensor& x = problem.clients[k].features;
    switch (settings.space) {
      case Space::Data:
        all.push_back(x.contiguous());
        break;
      case Space::Fourier:
        all.push_back(
            FourierFeatures(x.size(1), settings.fourier_features, bandwidth(problem), problem.seed)
                .mean_of(x));
        break;
      case Space::Feature:
        all.push_back(covariance_of(x));
        break;
      case Space::LogFeature:
        all.push_back(x.size(0) > 0 ? logarithm_of(covariance_of(x)) : x);
        break;
      case Space::Model:
        all.push_back(local_model(problem, static_cast<std::int64_t>(k), settings.passes));
        break;
    }
  }
  return all;
}

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

Distances client_distances(const Problem& problem, const ClientGraphSettings& settings) {
  const std::size_t n = problem.clients.size();
  const std::vector<Tensor> told = summaries(problem, settings);
  const double h = settings.space == Space::Data ? bandwidth(problem) : 0;
  Distances d(n, std::vector<double>(n, kNaN));
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      if (problem.clients[i].labels.size(0) == 0 || problem.clients[j].labels.size(0) == 0)
        continue;
      d[i][j] = settings.space == Space::Data ? mean_discrepancy(told[i], told[j], h)
                                              : apart(told[i], told[j]);
    }
  }
  return d;
}

ClientGraph nearest_neighbours(const Distances& distances, std::int64_t neighbours) {
  const std::size_t n = distances.size();
  std::set<std::pair<std::int64_t, std::int64_t>> joined;
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<std::pair<double, std::size_t>> others;
    for (std::size_t j = 0; j < n; ++j) {
      if (j != i && std::isfinite(distances[i][j])) others.emplace_back(distances[i][j], j);
    }
    std::sort(others.begin(), others.end());
    for (std::size_t k = 0; k < others.size() && k < static_cast<std::size_t>(neighbours); ++k) {
      joined.emplace(std::min(i, others[k].second), std::max(i, others[k].second));
    }
  }
  return {.edges = {joined.begin(), joined.end()},
          .weights = std::vector<double>(joined.size(), 1)};
}

ClientGraph client_graph(const Problem& problem, const ClientGraphSettings& settings) {
  const Distances d = client_distances(problem, settings);
  ClientGraph graph = nearest_neighbours(d, settings.neighbours);
  if (!settings.gaussian_weights || graph.edges.empty()) return graph;
  std::vector<double> lengths;
  for (const auto& [i, j] : graph.edges) {
    lengths.push_back(d[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)]);
  }
  const double s = median(lengths);
  for (std::size_t m = 0; m < lengths.size(); ++m) {
    graph.weights[m] = std::exp(-lengths[m] * lengths[m] / (2 * s * s));
  }
  return graph;
}

}  // namespace fedhpc::reference
