#pragma once

#include "reference/averaging.hpp"

namespace fedhpc::reference {

/// Li et al. 2020, Algorithm 2: every client minimises f_k(w) + mu/2 ||w - w_t||^2, the server
/// averages.
Outcome fedprox(const Problem& problem, double mu);

}  // namespace fedhpc::reference
