// What a binary GP classifier says of other samples, and the gradient of that.

#include <array>
#include <cmath>
#include <numbers>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "fedhpc/math/binary_gp.hpp"
#include "fedhpc/math/cholesky.hpp"

#include "math/gp_algebra.hpp"

namespace fedhpc {

namespace {

// Gauss-Hermite quadrature: the positive ones of 20 nodes, and weights that sum to 1 with those of
// the negative ones.
constexpr std::array<double, 10> kNodes{0.24534070830090124, 0.7374737285453944, 1.234076215395323,
                                        1.7385377121165861,  2.2549740020892757, 2.7888060584281305,
                                        3.3478545673832163,  3.944764040115625,  4.603682449550744,
                                        5.387480890011233};
constexpr std::array<double, 10> kWeights{
    0.2607930634495549,     0.16173933398399998,    0.0615063720639769,    0.013997837447101022,
    0.00183010313108049,    0.00012882627996192928, 4.402121090230851e-06, 6.127490259982928e-08,
    2.4820623623151755e-10, 1.2578006724379234e-13};

constexpr double kLeastVariance = 1e-12;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double log_sigmoid(double x) {
  return x < 0 ? x - std::log1p(std::exp(x)) : -std::log1p(std::exp(-x));
}

/// A probability, and its derivatives by mean and variance of the latent value.
struct Likelihood {
  double value = 0;
  double by_mean = 0;
  double by_variance = 0;
};

/// Takes the mean of a function of f ~ N(mean, variance); gives `take(f)` as value and derivative.
template <typename Take>
Likelihood mean_over_normal(double mean, double variance, const Take& take) {
  const double deviation = std::sqrt(variance < kLeastVariance ? kLeastVariance : variance);
  Likelihood sum;
  for (std::size_t q = 0; q < kNodes.size(); ++q) {
    for (const double node : {kNodes[q], -kNodes[q]}) {
      const auto [value, slope] = take(mean + std::numbers::sqrt2 * deviation * node);
      sum.value += kWeights[q] * value;
      sum.by_mean += kWeights[q] * slope;
      sum.by_variance += kWeights[q] * slope * node / (std::numbers::sqrt2 * deviation);
    }
  }
  return sum;
}

/// Of a side.
Likelihood likelihood(double mean, double variance, double side, Averaging averaging) {
  if (averaging == Averaging::Probability) {
    return mean_over_normal(mean, variance, [&](double f) {
      const double s = sigmoid(side * f);
      return std::pair(s, side * s * sigmoid(-side * f));
    });
  }
  Likelihood plus = mean_over_normal(
      mean, variance, [](double f) { return std::pair(log_sigmoid(f), sigmoid(-f)); });
  plus.value = std::exp(plus.value);
  plus.by_mean *= plus.value;
  plus.by_variance *= plus.value;
  return side > 0 ? plus : Likelihood{1 - plus.value, -plus.by_mean, -plus.by_variance};
}

/// What one chain makes of other samples: f there is normal.
struct ChainView {
  Tensor alpha;  // [n, 1]  (K + 1/omega)^-1 kappa/omega
  Tensor half;   // [n, m]  L^-1 S K*, with the factor L of I + S K S
  Tensor factor;
  std::vector<double> roots;
  std::vector<double> mean;      // [m]
  std::vector<double> variance;  // [m]
};

/// Row i of a matrix times factors[i].
void scale_rows_(const Tensor& matrix, const std::vector<double>& factors) {
  auto* row = matrix.data_ptr<double>();
  for (const double factor : factors) {
    for (std::int64_t j = 0; j < matrix.size(1); ++j) row[j] *= factor;
    row += matrix.size(1);
  }
}

ChainView view_of(const GpSamples& known, const Tensor& covariance, const Tensor& cross,
                  const double* omega, const GpKernel& kernel) {
  const std::int64_t n = cross.size(0);
  const std::int64_t m = cross.size(1);
  ChainView view;
  view.roots.resize(known.sides.size());
  view.factor = factor_of_chain(covariance, omega, view.roots.data());
  view.alpha = at::empty({n, 1}, at::kDouble);
  auto* alpha = view.alpha.data_ptr<double>();
  for (std::size_t i = 0; i < known.sides.size(); ++i)
    alpha[i] = known.sides[i] / 2 / view.roots[i];
  solve_lower_(view.factor, view.alpha);
  solve_lower_transposed_(view.factor, view.alpha);
  scale_rows_(view.alpha, view.roots);
  view.half = cross.clone();
  scale_rows_(view.half, view.roots);
  solve_lower_(view.factor, view.half);
  view.mean.assign(static_cast<std::size_t>(m), 0);
  view.variance.assign(static_cast<std::size_t>(m), kernel.outputscale + kernel.jitter);
  const auto* k = cross.const_data_ptr<double>();
  const auto* v = view.half.const_data_ptr<double>();
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < view.mean.size(); ++j, ++k, ++v) {
      view.mean[j] += alpha[i] * *k;
      view.variance[j] -= *v * *v;
    }
  }
  return view;
}

/// A chain's part of the gradients with respect to K and K*: `by_mean` and `by_variance` are those
/// of the loss with respect to the mean and the variance at every scored sample.
void add_kernel_gradients_(const ChainView& view, const std::vector<double>& by_mean,
                           const std::vector<double>& by_variance, const Tensor& of_covariance,
                           const Tensor& of_cross) {
  const std::int64_t n = of_cross.size(0);
  const std::int64_t m = of_cross.size(1);
  const Tensor spread = view.half;  // W = (K + 1/omega)^-1 K*
  solve_lower_transposed_(view.factor, spread);
  scale_rows_(spread, view.roots);
  const Tensor weighed = at::empty({n, m}, at::kDouble);  // W diag(by_variance)
  const auto* alpha = view.alpha.const_data_ptr<double>();
  const auto* w = spread.const_data_ptr<double>();
  auto* out = weighed.data_ptr<double>();
  auto* cross = of_cross.data_ptr<double>();
  std::vector<double> pulled;  // W by_mean
  for (std::int64_t i = 0; i < n; ++i) {
    double sum = 0;
    for (std::size_t j = 0; j < by_mean.size(); ++j, ++w, ++out, ++cross) {
      *out = *w * by_variance[j];
      *cross += alpha[i] * by_mean[j] - 2 * *out;
      sum += *w * by_mean[j];
    }
    pulled.push_back(sum);
  }
  product(1, weighed, Transpose::No, spread, Transpose::Yes, 1, of_covariance);
  auto* covariance = of_covariance.data_ptr<double>();
  for (const double value : pulled) {
    for (std::int64_t j = 0; j < n; ++j) *covariance++ -= value * alpha[j];
  }
}

/// Adds to `gradient` of units `a` that of  sum_ij h_ij k(a_i, b_j)  in a, where `h` holds
/// h_ij k(a_i, b_j) already:  -1/lengthscale^2 sum_j h_ij (a_i - b_j).
void add_unit_gradient_(const Tensor& h, const Tensor& a, const Tensor& b, const GpKernel& kernel,
                        const Tensor& gradient) {
  const double scale = 1 / (kernel.lengthscale * kernel.lengthscale);
  product(scale, h, Transpose::No, b, Transpose::No, 1, gradient);
  const auto* row = h.const_data_ptr<double>();
  const auto* unit = a.const_data_ptr<double>();
  auto* out = gradient.data_ptr<double>();
  for (std::int64_t i = 0; i < a.size(0); ++i, row += h.size(1)) {
    double sum = 0;
    for (std::int64_t j = 0; j < h.size(1); ++j) sum += row[j];
    for (std::int64_t e = 0; e < a.size(1); ++e) *out++ -= scale * sum * *unit++;
  }
}

}  // namespace

std::vector<double> gp_probabilities(const GpSamples& known, const Tensor& omega,
                                     const GpKernel& kernel, Averaging averaging,
                                     const Tensor& at) {
  const Tensor covariance = kernel_of(known.units, kernel);
  const Tensor cross = kernel_between(known.units, at, kernel);
  std::vector<double> probabilities(static_cast<std::size_t>(at.size(0)), 0);
  const std::int64_t draws = omega.size(0);
  for (std::int64_t c = 0; c < draws; ++c) {
    const ChainView view = view_of(known, covariance, cross,
                                   omega.const_data_ptr<double>() + c * omega.size(1), kernel);
    for (std::size_t j = 0; j < probabilities.size(); ++j) {
      probabilities[j] += likelihood(view.mean[j], view.variance[j], 1, averaging).value;
    }
  }
  for (double& probability : probabilities) probability /= static_cast<double>(draws);
  return probabilities;
}

double gp_predictive_loss(const GpSamples& known, const GpSamples& scored, const Tensor& omega,
                          const GpKernel& kernel, Averaging averaging, const Tensor& known_gradient,
                          const Tensor& scored_gradient) {
  const Tensor covariance = kernel_of(known.units, kernel);
  const Tensor cross = kernel_between(known.units, scored.units, kernel);
  const std::size_t m = scored.sides.size();
  const std::int64_t draws = omega.size(0);
  std::vector<ChainView> views;
  std::vector<std::vector<Likelihood>> likelihoods;
  std::vector<double> mean(m, 0);  // over chains
  for (std::int64_t c = 0; c < draws; ++c) {
    views.push_back(view_of(known, covariance, cross,
                            omega.const_data_ptr<double>() + c * omega.size(1), kernel));
    std::vector<Likelihood>& of_chain = likelihoods.emplace_back();
    for (std::size_t j = 0; j < m; ++j) {
      of_chain.push_back(
          likelihood(views.back().mean[j], views.back().variance[j], scored.sides[j], averaging));
      mean[j] += of_chain.back().value / static_cast<double>(draws);
    }
  }
  double loss = 0;
  std::vector<double> by_chain;  // of the loss with respect to each chain's probability
  for (const double probability : mean) {
    loss -= std::log(probability + kLeastProbability) / static_cast<double>(m);
    by_chain.push_back(-1 / (probability + kLeastProbability) / static_cast<double>(m) /
                       static_cast<double>(draws));
  }
  const Tensor of_covariance = at::zeros_like(covariance);
  const Tensor of_cross = at::zeros_like(cross);
  std::vector<double> by_mean(m);
  std::vector<double> by_variance(m);
  for (std::size_t c = 0; c < views.size(); ++c) {
    for (std::size_t j = 0; j < m; ++j) {
      by_mean[j] = by_chain[j] * likelihoods[c][j].by_mean;
      by_variance[j] = by_chain[j] * likelihoods[c][j].by_variance;
    }
    add_kernel_gradients_(views[c], by_mean, by_variance, of_covariance, of_cross);
  }
  const Tensor h = of_covariance.add(of_covariance.t()).mul(covariance);
  const Tensor h_cross = of_cross.mul(cross);
  add_unit_gradient_(h, known.units, known.units, kernel, known_gradient);
  add_unit_gradient_(h_cross, known.units, scored.units, kernel, known_gradient);
  add_unit_gradient_(h_cross.t().contiguous(), scored.units, known.units, kernel, scored_gradient);
  return loss;
}

}  // namespace fedhpc
