#pragma once

#include <string>

#include "reference/averaging.hpp"

namespace fedhpc::reference {

struct EF21PSettings {
  double fraction = 1.0 / 32;
  std::int64_t columns = 0;  // 0: by the fraction
  std::string upload = "rand_k";
  bool scale = false;
  double server_lr = 1;
};

struct EF21POutcome {
  Outcome outcome;
  std::vector<double> catch_up;  // per round: bytes of float64, mean over those that have trained
  double bytes_up = 0;           // of a participant, float64
  double bytes_down = 0;
};

/// Gruntkowska et al. 2023 with local training: x moves by the mean of the compressed updates, w by
/// the K largest entries of what it lacks of x. Batch norm is sent in full.
EF21POutcome ef21p(const Problem& problem, const EF21PSettings& settings);

}  // namespace fedhpc::reference
