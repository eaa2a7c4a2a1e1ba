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

/// FedAvg's rounds with mu (w - w_t) added to every local gradient; 0: FedAvg.
Outcome averaging(const Problem& problem, double mu);

}  // namespace fedhpc::reference
