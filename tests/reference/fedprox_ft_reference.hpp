#pragma once

#include "reference/fine_tuning.hpp"

namespace fedhpc::reference {

/// FedProx whose clients train on from the model they have fine-tuned without its term, or from the
/// received one; the term pulls to the received one.
FineTunedOutcome fedprox_ft(const Problem& problem, LocalStart start, double mu);

}  // namespace fedhpc::reference
