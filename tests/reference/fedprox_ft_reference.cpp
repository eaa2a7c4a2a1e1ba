#include "reference/fedprox_ft_reference.hpp"

namespace fedhpc::reference {

FineTunedOutcome fedprox_ft(const Problem& problem, LocalStart start, double mu) {
  return fine_tuning_rounds(problem, start, mu);
}

}  // namespace fedhpc::reference
