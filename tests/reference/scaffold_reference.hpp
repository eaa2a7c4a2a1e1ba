#pragma once

#include "reference/server_reference.hpp"

namespace fedhpc::reference {

enum class Control { Gradient, Steps };

struct ScaffoldOutcome {
  Outcome outcome;
  Parameters control;                // c
  std::vector<Parameters> controls;  // c_i
};

/// Karimireddy et al. 2020, Algorithm 1, options I (Gradient) and II (Steps).
ScaffoldOutcome scaffold(const Problem& problem, Control control, const ServerSettings& server);

}  // namespace fedhpc::reference
