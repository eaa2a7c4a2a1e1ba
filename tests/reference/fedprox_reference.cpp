#include "reference/fedprox_reference.hpp"

namespace fedhpc::reference {

Outcome fedprox(const Problem& problem, double mu) { return averaging_rounds(problem, mu); }

}  // namespace fedhpc::reference
