#pragma once

#include "reference/averaging.hpp"

namespace fedhpc::reference {

/// What stands for a coordinate that was not sent.
enum class Unsent {
  Keep,     ///< down: the client's own; up: nothing, a mean is over those that sent
  Zero,     ///< 0
  Rescale,  ///< 0, and what was sent is multiplied by d/m: right on average
};

/// FedAvg that sends m = max(1, floor(fraction d + 1/2)) of the d parameters, drawn anew for every
/// client, round and direction.
Outcome sparse_fedavg(const Problem& problem, double fraction, Unsent unsent);

}  // namespace fedhpc::reference
