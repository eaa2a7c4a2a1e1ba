#pragma once

#include "reference/averaging.hpp"

namespace fedhpc::reference {

struct DittoOutcome {
  Outcome outcome;
  std::vector<Parameters> personal;  // [N] v_k
};

/// Li et al. 2021, Algorithm 1 with FedAvg: v_k minimises f_k(v) + mu/2 ||v - w_t||^2 on the same
/// batches as w_k.
DittoOutcome ditto(const Problem& problem, double mu);

}  // namespace fedhpc::reference
