#pragma once

#include <string>

#include "reference/averaging.hpp"

namespace fedhpc::reference {

struct FedComLocSettings {
  double p = 0.1;
  std::string compress = "com";
  std::string codec = "dense";  ///< or top_k, qsgd
  double fraction = 0.01;
  std::int64_t levels = 7;
};

struct FedComLocOutcome {
  Outcome outcome;
  std::vector<Parameters> controls;  // h_i, of all rounds
  std::vector<std::int64_t> steps;   // K of each round
  std::vector<std::int64_t> sends;   // of x, of each round
};

/// Yi et al. 2024, Algorithm 1, one local step after the other.
FedComLocOutcome fedcomloc(const Problem& problem, const FedComLocSettings& settings);

}  // namespace fedhpc::reference
