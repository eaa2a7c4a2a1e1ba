#pragma once

#include "reference/problem.hpp"

namespace fedhpc::reference {

/// What a method leaves.
struct Outcome {
  Tensor global;                   // [P] float64
  std::vector<double> train_loss;  // per round
};

/// McMahan et al. 2017, Algorithm 1: w_{t+1} = sum_k n_k/n w_k over the round's clients.
Outcome fedavg(const Problem& problem);

/// Li et al. 2020, Algorithm 2: FedAvg whose local gradients are those of f_k(w) + mu/2 ||w -
/// w_t||^2.
Outcome fedprox(const Problem& problem, double mu);

}  // namespace fedhpc::reference
