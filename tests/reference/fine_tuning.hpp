#pragma once

#include "reference/averaging.hpp"

namespace fedhpc::reference {

/// Where local training starts.
enum class LocalStart { FineTuned, Received };

/// What a method leaves that fine-tunes a global model.
struct FineTunedOutcome {
  Outcome outcome;
  std::vector<Parameters> personal;        // [N] w after a local training on evaluation batches
  std::vector<double> reception_accuracy;  // per round; NaN where nobody could be tested
};

/// T rounds in which every client of the cohort fine-tunes w_t on the batches of pass 0, then
/// trains on those of pass 1 with the term mu/2 ||w - w_t||^2; the server takes the weighted mean.
FineTunedOutcome fine_tuning_rounds(const Problem& problem, LocalStart start, double mu);

}  // namespace fedhpc::reference
