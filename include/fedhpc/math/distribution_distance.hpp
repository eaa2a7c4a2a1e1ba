#pragma once

#include <cstdint>

#include "fedhpc/core/tensor.hpp"

// Measures the distance of two data sets that nobody may put side by side but in summary. It uses
// mean embeddings under a Gaussian kernel (Gretton et al., "A kernel two-sample test", JMLR 2012)
// and covariances of features (Arsigny et al., "Log-Euclidean metrics", 2006).
//
// A data set is a matrix of samples [n, F] in host memory, of any number type. Sums are taken in
// float64, in an order that the samples alone fix. The result for one data set does not depend on
// the others. A NaN among the features makes the result NaN, and so do no samples at all.

namespace fedhpc {

/// Returns the median Euclidean distance of the m (m - 1) / 2 pairs among `samples` [m, F],
/// distances that are not finite left out. It is 1 where that is 0 or there are none, so always a
/// bandwidth. Differences are taken before they are squared: equal samples have distance 0. Costs
/// m^2 F / 2 operations and 8 m^2 bytes.
double median_bandwidth(const Tensor& samples);

/// k(X, Y): mean of exp(-||x - y||^2 / (2 h^2)) over all pairs of samples of x [n, F] and y [m, F],
/// those of a sample with itself included, h > 0. The biased estimate of the squared maximum mean
/// discrepancy is MMD^2(X, Y) = k(X, X) + k(Y, Y) - 2 k(X, Y): 0 or more but for rounding, 0 for
/// equal samples in any order. k(X, Y) and k(Y, X) are the same bits. Costs 2 n m F operations in
/// tiles of matrix products.
double kernel_mean(const Tensor& x, const Tensor& y, double h);

/// Random Fourier features of the Gaussian kernel (Rahimi and Recht, "Random features for
/// large-scale kernel machines", NIPS 2007), in pairs:
///
///   z(x) = sqrt(2 / count) (cos w_1 x, ..., cos w_{count/2} x, sin w_1 x, ..., sin w_{count/2} x),
///   w_i ~ N(0, I / h^2)
///
/// so that <z(x), z(y)> is k(x, y) in expectation over w, with a variance of
/// (1 - k(x, y)^2)^2 / count, and 1 for x = y. Thus ||mean_of(X) - mean_of(Y)||^2 approximates the
/// biased MMD^2(X, Y), and clients need send no more than a mean.
///
/// h w_i are F normals each with key (seed, Purpose::Features, pass = 0, client = i - 1).
class FourierFeatures {
 public:
  /// Takes samples of `features` F > 0 numbers; `count` even and positive, bandwidth h > 0.
  FourierFeatures(std::int64_t features, std::int64_t count, double h, std::uint64_t seed);

  /// The mean of z(x) over the samples of x [n, F]: [count] float64. Costs n F count operations.
  Tensor mean_of(const Tensor& x) const;

  std::int64_t count() const { return 2 * frequencies_.size(0); }

 private:
  Tensor frequencies_;  // [count / 2, F] float64
};

/// Covariance of the features of x [n, F], divided by n: [F, F] float64, symmetric to the bit.
Tensor covariance(const Tensor& x);

/// Returns the matrix logarithm of c + ridge tr(c) / F I by eigendecomposition; c [F, F] symmetric,
/// positive semidefinite but for rounding, ridge >= 0. ||log_spd(a) - log_spd(b)||_F is the
/// log-Euclidean distance. Eigenvalues below the largest times 2^-52 F (a singular matrix with
/// ridge 0) count as that much. They count as the smallest normal number at least: the logarithm is
/// finite, also of 0.
Tensor log_spd(const Tensor& c, double ridge);

/// Maps samples linearly and at random to fewer dimensions: x -> A x, A [dimensions, F] ~
/// N(0, 1 / dimensions), row i with key (seed, Purpose::Features, pass = 1, client = i). Squared
/// distances stay in expectation, with a relative deviation of sqrt(2 / dimensions)
/// (Johnson and Lindenstrauss 1984). The identity where F is not larger.
class GaussianProjection {
 public:
  static constexpr std::int64_t kDimensions = 256;

  GaussianProjection(std::int64_t features, std::uint64_t seed,
                     std::int64_t dimensions = kDimensions);

  /// x [n, F] -> [n, min(F, dimensions)] float64.
  Tensor of(const Tensor& x) const;

 private:
  Tensor rows_;  // [dimensions, F] float64, undefined for the identity
};

}  // namespace fedhpc
