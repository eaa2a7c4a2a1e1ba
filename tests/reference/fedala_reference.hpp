#pragma once

#include "reference/averaging.hpp"

namespace fedhpc::reference {

struct FedALASettings {
  std::int64_t layers = 1;  // p
  double share = 0.8;       // s
  double weight_lr = 1;     // eta
  std::int64_t start_passes = 20;
  double tolerance = 0.001;
  // The authors' program:
  bool learn_all = false;       // all clients learn, from round 2 on
  bool watches_losses = false;  // start phase: deviation of the last 10 losses
  bool slice = false;           // samples side by side
};

struct FedALAOutcome {
  Outcome outcome;
  std::vector<Parameters> personal;  // [N] hat_i of the last Theta, by the weights learned last
  std::vector<Tensor> weights;       // [N] W_i over all parameters [P]; undefined: never learned
  // Per round, over participants; NaN without any:
  std::vector<double> reception_accuracy;  // of hat_i before local training
  std::vector<double> global_weight;       // mean of W_i over the top layers
  std::vector<double> start_passes;        // until convergence
};

/// Zhang et al. 2023, Algorithm 1, one client after the other; the weights' gradient by autograd
/// through the mixture.
FedALAOutcome fedala(const Problem& problem, const FedALASettings& settings);

}  // namespace fedhpc::reference
