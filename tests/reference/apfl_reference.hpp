#pragma once

#include "reference/averaging.hpp"

namespace fedhpc::reference {

struct APFLOutcome {
  Outcome outcome;
  std::vector<Parameters> personal;  // [N] alpha_i v_i + (1 - alpha_i) w
  std::vector<double> alpha;         // [N]
};

/// Deng et al. 2020, Algorithm 1, from `alpha` for every client; `adaptive`: the first local step of
/// a round moves it.
APFLOutcome apfl(const Problem& problem, double alpha, bool adaptive);

}  // namespace fedhpc::reference
