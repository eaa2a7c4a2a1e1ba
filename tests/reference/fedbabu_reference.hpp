#pragma once

#include "reference/averaging.hpp"

namespace fedhpc::reference {

struct FedBABUOutcome {
  Outcome outcome;
  std::vector<Parameters> personal;  // [N] the global model after fine-tuning of a part
};

/// Oh et al. 2022, Algorithm 1: clients train the body under the initial head, the server averages
/// bodies. Clients then fine-tune `tuned` of the outcome by a local training on evaluation batches.
FedBABUOutcome fedbabu(const Problem& problem, Part tuned);

}  // namespace fedhpc::reference
