#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "fedhpc/core/rng.hpp"
#include "fedhpc/core/tensor.hpp"

namespace fedhpc {

/// Covariance of a Gaussian process on the unit sphere: k(a, b) = outputscale exp(-||a - b||^2 /
/// (2 lengthscale^2)), with `jitter` added where a sample meets itself.
struct GpKernel {
  double outputscale = 8;
  double lengthscale = 1;
  double jitter = 1e-3;
};

/// Added to a probability before its logarithm is taken.
constexpr double kLeastProbability = 1e-12;

/// The number of Gibbs chains, and their length.
struct GibbsChains {
  std::int64_t draws = 20;  ///< chains, each of which gives one draw
  std::int64_t steps = 5;   ///< after the start
};

/// The way a latent normal value f becomes a probability of side +1, in the mean over it.
enum class Averaging {
  Probability,    ///< E sigmoid(f)
  LogProbability  ///< exp(E log sigmoid(f)), which is less; of side -1 what is left
};

/// The samples that a binary classifier knows.
struct GpSamples {
  Tensor units;               // [n, E] float64, rows of length 1
  std::vector<double> sides;  // [n] of -1 and +1
};

/// The weight of each side: how much likelier it is where a classifier is used than among the
/// samples that it knows. That is P(side) / Q(side), but for a common factor.
struct SideWeights {
  double plus = 1;
  double minus = 1;
};

/// A side's probability among samples with another distribution of sides, and its derivative: w p /
/// (w p + v (1 - p)) with the weight w of this side and v of the other.
struct WeighedProbability {
  double value = 0;
  double slope = 1;
};
WeighedProbability weighed(double probability, double side, const SideWeights& weights);

/// Divides the rows of `values` [n, E] by their lengths; rows of zeros stay.
Tensor unit_rows(const Tensor& values);

/// Returns the gradient with respect to `values` [n, E], given that with respect to their unit
/// rows; zero for rows of zeros.
Tensor gradient_through_unit_rows(const Tensor& values, const Tensor& units,
                                  const Tensor& gradient);

/// Returns the kernel between two lists of unit rows, [n, m], without jitter.
Tensor kernel_between(const Tensor& a, const Tensor& b, const GpKernel& kernel);

/// Draws the Polya-Gamma variables omega [draws, n] of a GP classifier with these samples and the
/// likelihood sigmoid(side f) by Gibbs chains. A chain starts with f from the prior. A step draws f
/// given omega, then omega given f. `stream` gives the draws of a chain.
///
/// Order of draws: n normals, then omega_1 to omega_n; in each step 2n normals (of the prior, then
/// of the noise), then omega_1 to omega_n. With K = L L^T, S = diag(sqrt(omega)), kappa = sides/2,
/// a step is  f = L z + K S (I + S K S)^-1 (kappa / S - S L z - e).
Tensor gibbs_draws(const GpSamples& known, const GpKernel& kernel, const GibbsChains& chains,
                   const std::function<Draws(std::int64_t chain)>& stream);

/// Returns the probability of side +1 at each unit row of `at` [m, E], given the samples and draws
/// omega: [m]. For each chain f is normal; Gauss-Hermite quadrature with 20 nodes takes the mean
/// over it, then the mean over chains is taken.
std::vector<double> gp_probabilities(const GpSamples& known, const Tensor& omega,
                                     const GpKernel& kernel, Averaging averaging, const Tensor& at);

/// The predictive loss: the mean of -log P(side) over `scored` samples given the `known` ones and
/// omega. Adds its gradients, for a fixed omega, to those with respect to both lists of units.
double gp_predictive_loss(const GpSamples& known, const GpSamples& scored, const Tensor& omega,
                          const GpKernel& kernel, Averaging averaging,
                          const Tensor& known_gradient,   // [n, E]
                          const Tensor& scored_gradient,  // [m, E]
                          const SideWeights& weights = {});

}  // namespace fedhpc
