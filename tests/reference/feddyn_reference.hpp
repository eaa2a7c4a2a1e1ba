#pragma once

#include "reference/averaging.hpp"

namespace fedhpc::reference {

/// Acar et al. 2021, Algorithm 1.
Outcome feddyn(const Problem& problem, double alpha);

}  // namespace fedhpc::reference
