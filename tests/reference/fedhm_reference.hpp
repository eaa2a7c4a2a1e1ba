#pragma once

#include "reference/factor_training.hpp"

namespace fedhpc::reference {

/// Yao et al. 2021, FedHM, with equal ranks: clients train the factors of a truncated SVD of the
/// global model, the server averages the models they stand for.
FactorOutcome fedhm(const Problem& problem, const FactorisationSettings& settings);

}  // namespace fedhpc::reference
