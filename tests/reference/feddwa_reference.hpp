#pragma once

#include "reference/link.hpp"

namespace fedhpc::reference {

/// What FedDWA leaves.
struct FedDWAOutcome {
  std::vector<Parameters> clouds;  // [N] u_k
  std::vector<double> train_loss;  // per round
  double least_own_weight = 1;     // of w_k in u_k, over clients and rounds
};

/// J. Liu et al., IJCAI 2023, one client after the other. u_k and w_k travel by `models`, w'_k by
/// `guides`; null: whole.
FedDWAOutcome feddwa(const Problem& problem, std::size_t top_k, Link* models = nullptr,
                     Link* guides = nullptr);

/// The weights of models at these distances of a guidance model.
std::vector<double> feddwa_weights(const std::vector<double>& distances, std::size_t top_k);

}  // namespace fedhpc::reference
