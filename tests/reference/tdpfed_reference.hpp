#pragma once

#include "reference/factorised.hpp"
#include "reference/personal.hpp"

namespace fedhpc::reference {

struct TDPFedSettings {
  FactorisationSettings factorisation;  ///< cp, its ranks, and what it leaves as it is
  double personal_lr = 0.08;            ///< eta_p
  double lambda = 12;
  double momentum = 0.5;           ///< of Nesterov's method on theta
  std::int64_t inner_steps = 5;    ///< s
  std::int64_t factor_steps = 17;  ///< s'
  double beta = 1;
  bool act = false;              ///< the server averages composed tensors (19), not factors (18)
  bool send_tensor = false;      ///< theta starts from the composed tensor of the server
  bool fit = false;              ///< factors by a decomposition of theta, not by Adam
  std::int64_t fit_sweeps = 10;  ///< of the decomposition of a kernel
};

/// TDPFed, Algorithm 1: s steps on theta_k pulled to [[A_k]], s' on the factors A_k pulled to
/// theta_k, whose running statistics A_k has. The global model is [[A]], with `act` omega (20);
/// after no round [[A_0]]. Local models: [[A_k]]. The signs of the columns of an SVD are arbitrary:
/// `fit` without `act` averages what they left.
PersonalOutcome tdpfed(const Problem& problem, const TDPFedSettings& settings);

}  // namespace fedhpc::reference
