#include "reference/fedavg_reference.hpp"

namespace fedhpc::reference {

Outcome fedavg(const Problem& problem) { return averaging_rounds(problem, /*mu=*/0); }

}  // namespace fedhpc::reference
