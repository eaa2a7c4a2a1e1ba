#pragma once

#include "reference/averaging.hpp"

namespace fedhpc::reference {

struct PFedGPSettings {
  double outputscale = 8;
  double lengthscale = 1;
  double jitter = 1e-3;
  std::int64_t draws = 20;
  std::int64_t gibbs_steps = 5;
  std::int64_t test_draws = 30;
  std::int64_t test_gibbs_steps = 5;
  double scored_share = 0.5;
  bool logarithms = false;  ///< averaged in the place of probabilities
  double clip = 50;
  std::int64_t inducing_points = 0;  ///< of each class
  double inducing_deviation = 0.01;
};

struct PFedGPOutcome {
  std::vector<Parameters> personal;  // [N] the common body, with the initial classifier
  std::vector<double> train_loss;    // per round
  double accuracy = 0;               // plain mean over clients, after the last round
  std::int64_t scored = 0;           // samples that a node's loss has scored
  std::int64_t clipped = 0;          // gradients that were shortened
};

/// Achituve et al. 2021 with all of a client's samples, or with inducing points that classifiers
/// know in their place in training and beside them in evaluation: covariances as dense matrices and
/// their inverses, gradients by autograd. Polya-Gamma draws are those of math/, which have tests of
/// their own.
PFedGPOutcome pfedgp(const Problem& problem, const PFedGPSettings& settings);

}  // namespace fedhpc::reference
