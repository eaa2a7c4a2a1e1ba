#pragma once

#include "reference/message_passing.hpp"

namespace fedhpc::reference {

struct HeurFedAMPSettings {
  double sigma = 25;
  double alpha = 0.5;  ///< weight of a client's own model
  double lambda = 1;   ///< of the proximal term lambda/2 ||w - u_i||^2
};

/// The weights of HeurFedAMP: alpha for one's own model, of the others shares of 1 - alpha by
/// exp(sigma cos(w_i, w_j)).
std::vector<double> heurfedamp_weights(std::size_t i, const std::vector<Parameters>& models,
                                       const HeurFedAMPSettings& settings);

/// Huang et al. 2021, section "HeurFedAMP".
MessagesOutcome heurfedamp(const Problem& problem, const HeurFedAMPSettings& settings);

}  // namespace fedhpc::reference
