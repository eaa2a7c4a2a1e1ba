#pragma once

#include "reference/factor_training.hpp"

namespace fedhpc::reference {

/// Hyeon-Woo et al. 2022, FedPara: a network whose layers are entrywise products of two low-rank
/// ones (Propositions 1 and 3), trained by FedAvg. U(-range, range) starts, or normal ones without
/// a range.
FactorOutcome fedpara(const Problem& problem, const FactorisationSettings& settings,
                      const std::optional<double>& range);

}  // namespace fedhpc::reference
