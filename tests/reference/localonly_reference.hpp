#pragma once

#include "reference/averaging.hpp"

namespace fedhpc::reference {

struct LocalOutcome {
  std::vector<Parameters> models;  // [N]
  std::vector<double> train_loss;  // per round
};

/// Every participant goes on from its own model; nobody exchanges anything.
LocalOutcome localonly(const Problem& problem);

}  // namespace fedhpc::reference
