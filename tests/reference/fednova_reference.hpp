#pragma once

#include "reference/server_reference.hpp"

namespace fedhpc::reference {

struct FedNovaOutcome {
  Outcome outcome;
  std::vector<double> effective_steps;  // tau_eff per round
};

/// Wang et al. 2020, equations (7) to (9), of SGD, momentum and Nesterov's, with the proximal term.
FedNovaOutcome fednova(const Problem& problem, double mu, const ServerSettings& server);

}  // namespace fedhpc::reference
