#pragma once

#include "reference/averaging.hpp"

namespace fedhpc::reference {

/// McMahan et al. 2017, Algorithm 1: w_{t+1} = sum_k n_k/n w_k over the round's clients.
Outcome fedavg(const Problem& problem);

}  // namespace fedhpc::reference
