#include "fedhpc/math/binary_gp.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "fedhpc/core/error.hpp"
#include "fedhpc/math/cholesky.hpp"
#include "fedhpc/math/polya_gamma.hpp"

#include "math/gp_algebra.hpp"

namespace fedhpc {

namespace {

constexpr double kLeastOmega = 1e-16;  // nothing is divided by 0

std::vector<double> lengths_of(const Tensor& rows) {
  std::vector<double> lengths;
  const auto* values = rows.const_data_ptr<double>();
  const std::int64_t width = rows.size(1);
  for (std::int64_t i = 0; i < rows.size(0); ++i, values += width) {
    double sum = 0;
    for (std::int64_t e = 0; e < width; ++e) sum += values[e] * values[e];
    lengths.push_back(std::sqrt(sum));
  }
  return lengths;
}

/// One Gibbs chain.
class GibbsChain {
 public:
  GibbsChain(const GpSamples& known, const Tensor& covariance, const Tensor& root, Draws draws)
      : known_(known),
        covariance_(covariance),
        root_(root),
        draws_(draws),
        size_(covariance.size(0)),
        latent_(known.sides.size()),
        roots_(known.sides.size()),
        right_(at::empty({size_, 1}, at::kDouble)) {}

  /// f from the prior, then omega.
  void start_(double* omega) {
    draw_prior_();
    draw_omega_(omega);
  }

  /// f given omega, then omega given f.
  void step_(double* omega) {
    draw_prior_();
    const Tensor factor = factor_of_chain(covariance_, omega, roots_.data());
    auto* right = right_.data_ptr<double>();
    for (std::size_t i = 0; i < latent_.size(); ++i) {
      right[i] = known_.sides[i] / 2 / roots_[i] - roots_[i] * latent_[i] - draws_.normal();
    }
    solve_lower_(factor, right_);
    solve_lower_transposed_(factor, right_);
    for (std::size_t i = 0; i < latent_.size(); ++i) right[i] *= roots_[i];
    const auto* row = covariance_.const_data_ptr<double>();
    for (double& value : latent_) {
      double sum = 0;
      for (std::int64_t j = 0; j < size_; ++j) sum += row[j] * right[j];
      value += sum;
      row += size_;
    }
    draw_omega_(omega);
  }

 private:
  void draw_prior_() {
    std::vector<double> normals;
    for (std::int64_t i = 0; i < size_; ++i) normals.push_back(draws_.normal());
    const auto* row = root_.const_data_ptr<double>();
    for (std::int64_t i = 0; i < size_; ++i, row += size_) {
      double sum = 0;
      for (std::int64_t j = 0; j <= i; ++j) sum += row[j] * normals[static_cast<std::size_t>(j)];
      latent_[static_cast<std::size_t>(i)] = sum;
    }
  }

  void draw_omega_(double* omega) {
    for (std::size_t i = 0; i < latent_.size(); ++i) omega[i] = polya_gamma(latent_[i], draws_);
  }

  const GpSamples& known_;
  const Tensor& covariance_;
  const Tensor& root_;
  Draws draws_;
  std::int64_t size_;
  std::vector<double> latent_;
  std::vector<double> roots_;
  Tensor right_;
};

}  // namespace

Tensor unit_rows(const Tensor& values) {
  const Tensor units = values.to(at::kDouble).contiguous().clone();
  const std::vector<double> lengths = lengths_of(units);
  auto* row = units.data_ptr<double>();
  for (const double length : lengths) {
    if (length > 0) {
      std::for_each(row, row + units.size(1), [&](double& value) { value /= length; });
    }
    row += units.size(1);
  }
  return units;
}

Tensor gradient_through_unit_rows(const Tensor& values, const Tensor& units,
                                  const Tensor& gradient) {
  const Tensor through = at::empty_like(units);
  const std::vector<double> lengths = lengths_of(values.to(at::kDouble).contiguous());
  const std::int64_t width = units.size(1);
  const auto* unit = units.const_data_ptr<double>();
  const auto* g = gradient.const_data_ptr<double>();
  auto* out = through.data_ptr<double>();
  for (const double length : lengths) {
    double along = 0;
    for (std::int64_t e = 0; e < width; ++e) along += unit[e] * g[e];
    for (std::int64_t e = 0; e < width; ++e) {
      out[e] = length == 0 ? 0 : (g[e] - unit[e] * along) / length;
    }
    unit += width;
    g += width;
    out += width;
  }
  return through;
}

Tensor kernel_between(const Tensor& a, const Tensor& b, const GpKernel& kernel) {
  const Tensor values = at::empty({a.size(0), b.size(0)}, at::kDouble);
  product(1, a, Transpose::No, b, Transpose::Yes, 0, values);
  const std::vector<double> of_a = lengths_of(a);
  const std::vector<double> of_b = lengths_of(b);
  const double scale = 2 * kernel.lengthscale * kernel.lengthscale;
  auto* value = values.data_ptr<double>();
  for (const double length : of_a) {
    for (const double other : of_b) {
      const double square = std::max(length * length + other * other - 2 * *value, 0.0);
      *value++ = kernel.outputscale * std::exp(-square / scale);
    }
  }
  return values;
}

Tensor kernel_of(const Tensor& units, const GpKernel& kernel) {
  const Tensor covariance = kernel_between(units, units, kernel);
  auto* values = covariance.data_ptr<double>();
  const std::int64_t n = covariance.size(0);
  for (std::int64_t i = 0; i < n; ++i) values[i * n + i] = kernel.outputscale + kernel.jitter;
  return covariance;
}

Tensor factor_of_chain(const Tensor& covariance, const double* omega, double* roots) {
  const std::int64_t n = covariance.size(0);
  for (std::int64_t i = 0; i < n; ++i) roots[i] = std::sqrt(std::max(omega[i], kLeastOmega));
  const Tensor factor = at::empty_like(covariance);
  const auto* from = covariance.const_data_ptr<double>();
  auto* to = factor.data_ptr<double>();
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < n; ++j) to[i * n + j] = roots[i] * roots[j] * from[i * n + j];
    to[i * n + i] += 1;
  }
  cholesky_(factor);
  return factor;
}

Tensor gibbs_draws(const GpSamples& known, const GpKernel& kernel, const GibbsChains& chains,
                   const std::function<Draws(std::int64_t)>& stream) {
  const auto n = static_cast<std::int64_t>(known.sides.size());
  require(n > 0 && known.units.size(0) == n, "a side for every sample");
  const Tensor covariance = kernel_of(known.units, kernel);
  const Tensor root = covariance.clone();
  cholesky_(root);
  const Tensor omega = at::empty({chains.draws, n}, at::kDouble);
  for (std::int64_t c = 0; c < chains.draws; ++c) {
    GibbsChain chain(known, covariance, root, stream(c));
    double* of_chain = omega.data_ptr<double>() + c * n;
    chain.start_(of_chain);
    for (std::int64_t step = 0; step < chains.steps; ++step) chain.step_(of_chain);
  }
  return omega;
}

}  // namespace fedhpc
