#pragma once

#include "reference/message_passing.hpp"

namespace fedhpc::reference {

struct FedAMPSettings {
  double sigma = 25;
  double alpha_k = 1;
  double lambda = 1;            ///< of the proximal term lambda/2 ||w - u_i||^2
  bool any_own_weight = false;  ///< one's own may be below 0, where others are more than 1
};

/// The weights of FedAMP: alpha_k / sigma exp(-||w_i - w_j||^2 / sigma) of the others, what they
/// leave of 1 for one's own; others that are more than 1 together are scaled down to 1.
std::vector<double> fedamp_weights(std::size_t i, const std::vector<Parameters>& models,
                                   const FedAMPSettings& settings);

/// Huang et al. 2021, Algorithm 1. `link` as in message_passing.
MessagesOutcome fedamp(const Problem& problem, const FedAMPSettings& settings,
                       Link* link = nullptr);

}  // namespace fedhpc::reference
