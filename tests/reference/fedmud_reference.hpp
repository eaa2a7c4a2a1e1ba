#pragma once

#include "reference/factor_training.hpp"

namespace fedhpc::reference {

struct FedMUDSettings {
  FactorisationSettings factorisation;
  double range = 0.1;  ///< a: drawn factors are U(-a, a)
  std::int64_t reset_interval = 1;
  bool start_from_factors = false;  ///< W^0 = 0 and all factors drawn, instead of no update
  bool identity = false;            ///< constants are unit matrices
};

/// Li et al. 2025, FedMUD: every round clients train the factors of an update of W, the server
/// averages them, and every s rounds adds the update to W and draws anew.
FactorOutcome fedmud(const Problem& problem, const FedMUDSettings& settings);

}  // namespace fedhpc::reference
