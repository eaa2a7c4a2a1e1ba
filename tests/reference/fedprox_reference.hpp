#pragma once

#include "reference/fedavg_reference.hpp"

namespace fedhpc::reference {

/// Li et al. 2020, Algorithm 2: FedAvg whose local gradients are those of f_k(w) + mu/2 ||w -
/// w_t||^2.
Outcome fedprox(const Problem& problem, double mu);

}  // namespace fedhpc::reference
