#pragma once

#include "reference/personal.hpp"

namespace fedhpc::reference {

struct PFedMeSettings {
  double personal_lr = 0.09;  ///< eta_p
  double lambda = 15;
  std::int64_t inner_steps = 5;  ///< K
  double beta = 1;
  bool all_train = false;           ///< whoever is drawn; those that are drawn are averaged
  bool restart_every_step = false;  ///< theta <- w before every local step, not only once a round
};

/// T. Dinh et al. 2020, Algorithm 1: K steps on theta_k pulled to w_k, one step of w_k to theta_k;
/// the server mixes the mean of w_k into w. Local models: w_{k,R}.
PersonalOutcome pfedme(const Problem& problem, const PFedMeSettings& settings);

}  // namespace fedhpc::reference
