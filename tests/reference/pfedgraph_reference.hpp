#pragma once

#include "reference/link.hpp"

namespace fedhpc::reference {

struct PFedGraphSettings {
  double alpha = 0.8;
  double lambda = 0.01;
  double alike = 1;
};

/// What pFedGraph leaves.
struct PFedGraphOutcome {
  std::vector<Parameters> models;     // [N] theta_i
  std::vector<Parameters> clouds;     // [N] u_i
  std::vector<double> train_loss;     // per round
  std::vector<double> own_weight;     // per round, mean over participants
  std::vector<double> collaborators;  // the same
  double nearest_to_alike = 2;        // over all pairs: how far a cosine was from settings.alike
};

/// Ye et al., ICML 2023, one client after the other. Models travel by `link`.
PFedGraphOutcome pfedgraph(const Problem& problem, const PFedGraphSettings& settings,
                           Link* link = nullptr);

/// argmin over w >= 0 with sum w = 1 of alpha ||w - sizes||^2 - sum_j w_j cosines_j, by bisection for
/// the multiplier of the sum.
std::vector<double> graph_row(const std::vector<double>& cosines, const std::vector<double>& sizes,
                              double alpha);

}  // namespace fedhpc::reference
