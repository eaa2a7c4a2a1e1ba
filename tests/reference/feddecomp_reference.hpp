#pragma once

#include "reference/factor_training.hpp"
#include "reference/link.hpp"

namespace fedhpc::reference {

struct FedDecompSettings {
  FactorisationSettings factorisation;
  double range = 1;
  std::int64_t personal_passes = 2;
  std::int64_t shared_passes = 3;
};

/// What FedDecomp leaves.
struct FedDecompOutcome {
  Outcome outcome;                   // global: sigma
  std::vector<Parameters> personal;  // [N] sigma + tau_k
};

/// Wu et al., ACM MM 2024, one client after the other. sigma and its changes travel by `link`.
FedDecompOutcome feddecomp(const Problem& problem, const FedDecompSettings& settings,
                           Link* link = nullptr);

}  // namespace fedhpc::reference
