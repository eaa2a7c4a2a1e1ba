#pragma once

#include "reference/factor_training.hpp"

namespace fedhpc::reference {

/// Federated averaging of adapters (alpha / r) B A of the initial model, A drawn U(-range, range) /
/// sqrt(its columns), B from 0.
FactorOutcome lora(const Problem& problem, const FactorisationSettings& settings, double range);

}  // namespace fedhpc::reference
