#pragma once

#include "reference/fine_tuning.hpp"

namespace fedhpc::reference {

/// FedAvg whose clients train on from the model they have fine-tuned, or from the received one.
FineTunedOutcome fedavg_ft(const Problem& problem, LocalStart start);

}  // namespace fedhpc::reference
