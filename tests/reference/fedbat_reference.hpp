#pragma once

#include "reference/averaging.hpp"

namespace fedhpc::reference {

struct FedBATSettings {
  double warm_up = 0.5;
  double step_rate = 6;
  double least_step = 5e-4;
  double most_step = 5e-2;
  bool binary_download = false;
};

struct FedBATOutcome {
  Outcome outcome;
  std::vector<double> catch_up;  // per round: bytes of float64, mean over those that have trained
  double bytes_up = 0;           // of a participant, float64
  double bytes_down = 0;
};

/// Li et al. 2024: local models W + S(m; alpha), m and the step alpha of every tensor trained by
/// straight-through gradients, the first share of the local steps in full.
FedBATOutcome fedbat(const Problem& problem, const FedBATSettings& settings);

}  // namespace fedhpc::reference
