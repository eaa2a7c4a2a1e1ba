#pragma once

#include "reference/averaging.hpp"

namespace fedhpc::reference {

struct MOONOutcome {
  Outcome outcome;
  double contrast = 0;  // the mean over the last round's batches of l_con
};

/// Li, He, Song 2021, Algorithm 1, with weight mu and temperature tau.
MOONOutcome moon(const Problem& problem, double mu, double tau);

}  // namespace fedhpc::reference
