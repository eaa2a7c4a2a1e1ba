#pragma once

#include "reference/factor_training.hpp"

namespace fedhpc::reference {

/// Liu et al. 2024, FedLMT: a network of low-rank layers U V^T trained by FedAvg. U(-range, range)
/// starts, or normal ones without a range.
FactorOutcome fedlmt(const Problem& problem, const FactorisationSettings& settings,
                     const std::optional<double>& range);

}  // namespace fedhpc::reference
