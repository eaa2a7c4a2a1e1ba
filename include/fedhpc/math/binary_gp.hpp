#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "fedhpc/core/rng.hpp"
#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

/// Covariance of a Gaussian process on the unit sphere: k(a, b) = outputscale
/// exp(-||a - b||^2 / (2 lengthscale^2)), with `jitter` added where a sample meets itself.
struct GpKernel {
  double outputscale = 8;
  double lengthscale = 1;
  double jitter = 1e-3;
};

/// Added to a probability before its logarithm is taken.
constexpr double kLeastProbability = 1e-12;

/// How long Gibbs chains are, and how many.
struct GibbsChains {
  std::int64_t draws = 20;  ///< chains, each of which gives one draw
  std::int64_t steps = 5;   ///< after the start
};

/// What a latent normal value f becomes as a probability of side +1, in the mean over it.
enum class Averaging {
  Probability,    ///< E sigmoid(f)
  LogProbability  ///< exp(E log sigmoid(f)), which is less; of side -1 what is left
};

/// The samples that a binary classifier knows.
struct GpSamples {
  Tensor units;               // [n, E] float64, rows of length 1
  std::vector<double> sides;  // [n] of -1 and +1
};

/// Rows of `values` [n, E], divided by their lengths; rows of zeros stay.
Tensor unit_rows(const Tensor& values);

/// The gradient with respect to `values` [n, E], given that with respect to their unit rows; zero
/// for rows of zeros.
Tensor gradient_through_unit_rows(const Tensor& values, const Tensor& units,
                                  const Tensor& gradient);

/// The kernel between two lists of unit rows, [n, m], without jitter.
Tensor kernel_between(const Tensor& a, const Tensor& b, const GpKernel& kernel);

/// Gibbs draws of the Polya-Gamma variables omega [draws, n] of a GP classifier with these samples
/// and the likelihood sigmoid(side f). A chain starts with f from the prior; a step draws f given
/// omega, then omega given f. `stream` gives the draws of a chain.
///
/// Order of draws: n normals, then omega_1 to omega_n; in each step 2n normals (of the prior, then
/// of the noise), then omega_1 to omega_n. With K = L L^T, S = diag(sqrt(omega)), kappa = sides/2,
/// a step is  f = L z + K S (I + S K S)^-1 (kappa / S - S L z - e).
Tensor gibbs_draws(const GpSamples& known, const GpKernel& kernel, const GibbsChains& chains,
                   const std::function<Draws(std::int64_t chain)>& stream);

/// The probability of side +1 at each unit row of `at` [m, E], given the samples and draws omega:
/// for each chain f is normal, and the mean over it is taken by Gauss-Hermite quadrature with 20
/// nodes; then the mean over chains. [m].
std::vector<double> gp_probabilities(const GpSamples& known, const Tensor& omega,
                                     const GpKernel& kernel, Averaging averaging, const Tensor& at);

/// The predictive likelihood: the mean of -log P(side) over `scored` samples given the `known` ones
/// and omega. Adds its gradients, for a fixed omega, to those with respect to both lists of units.
double gp_predictive_loss(const GpSamples& known, const GpSamples& scored, const Tensor& omega,
                          const GpKernel& kernel, Averaging averaging,
                          const Tensor& known_gradient,    // [n, E]
                          const Tensor& scored_gradient);  // [m, E]

}  // namespace fedhpc
