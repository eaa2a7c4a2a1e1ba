#include "reference/fedavg_ft_reference.hpp"

namespace fedhpc::reference {

FineTunedOutcome fedavg_ft(const Problem& problem, LocalStart start) {
  return fine_tuning_rounds(problem, start, /*mu=*/0);
}

}  // namespace fedhpc::reference
