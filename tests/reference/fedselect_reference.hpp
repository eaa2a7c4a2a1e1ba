#pragma once

#include "reference/averaging.hpp"

namespace fedhpc::reference {

struct Selection {
  double rate = 0.25;
  double limit = 0.8;
  std::int64_t every = 1;
  std::int64_t personal_passes = 1;
  std::int64_t alternations = 1;
};

struct FedSelectOutcome {
  Outcome outcome;
  std::vector<Parameters> personal;    // [N] what each client would start from next
  std::vector<Parameters> masks;       // [N] 1: personal, 0: shared
  std::vector<double> personal_share;  // per round, mean over participants that trained
};

/// Tamirisa et al. 2024: clients train personal and shared parameters in turn, the server averages
/// each parameter over those that share it, and then clients personalize those that moved most.
FedSelectOutcome fedselect(const Problem& problem, const Selection& selection);

}  // namespace fedhpc::reference
