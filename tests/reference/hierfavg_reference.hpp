#pragma once

#include "reference/averaging.hpp"

namespace fedhpc::reference {

struct HierarchicalOutcome {
  Outcome outcome;
  std::vector<Parameters> edges;  // [E] the edges' models before the last cloud mean
};

/// Liu et al. 2020, Algorithm 1: kappa_2 means within every edge, then one over the edges, weighed
/// by the samples of their participants.
HierarchicalOutcome hierfavg(const Problem& problem, std::int64_t kappa_2);

/// The same as the authors' program does it: an edge draws its participants anew for every mean,
/// one by one with probabilities by their samples, and weighs all its clients' samples at the
/// cloud.
HierarchicalOutcome hierfavg_of_the_authors(const Problem& problem, std::int64_t kappa_2);

}  // namespace fedhpc::reference
