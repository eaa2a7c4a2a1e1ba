#pragma once

#include "reference/averaging.hpp"

/// Methods whose clients keep batch norm's running statistics, as programs do that average what
/// PyTorch calls a model's parameters and nothing else.
namespace fedhpc::reference {

struct OwnStatisticsOutcome {
  Outcome outcome;                   // of a global model with the statistics it started from
  std::vector<Parameters> received;  // [N] the global model with each client's statistics
  std::vector<Parameters> personal;  // [N] each client's own model, where there is one
};

OwnStatisticsOutcome fedavg_with_own_statistics(const Problem& problem);

/// The personal model has statistics of its own, besides those of the common one.
OwnStatisticsOutcome ditto_with_own_statistics(const Problem& problem, double mu);

/// One head epoch, then one of the body.
OwnStatisticsOutcome fedrep_with_own_statistics(const Problem& problem);

}  // namespace fedhpc::reference
